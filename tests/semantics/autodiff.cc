// Rows about derivatives: grad, jvp, vjp, linearize, linear_transpose, Jacobians and checkpoint. A
// row is a program in Python, whose results in JAX are recorded, and its twin: the same program in
// C++ with the SDK. semantics_test.cc runs the twins and compares their results with the recorded
// ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "autodiff/...". Each section is about one transform: the results that it gives and
// the errors that it raises.
void AddAutodiff(Table& t) {
  // ---- grad. ----
  t.Gives("autodiff/grad", R"py(
out = grad(lambda x: jnp.sum(x ** 3))(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return sum(lax::integer_pow(x, 3)); })(Ar({3})); });
  t.Gives("autodiff/grad_by_the_first_argument", R"py(
out = grad(lambda x, y: jnp.sum(x * y))(ar(3), ar(3) + 1)
)py")
      .Twin([] { return grad([](Array x, Array y) { return sum(x * y); })(Ar({3}), Ar({3}) + 1); });
  t.Gives("autodiff/grad_argnums", R"py(
out = grad(lambda x, y: jnp.sum(x * y), argnums=1)(ar(3), ar(3) + 1)
)py")
      .Twin([] {
        return grad<1>([](Array x, Array y) { return sum(x * y); })(Ar({3}), Ar({3}) + 1);
      });
  t.Gives("autodiff/grad_of_two_argnums", R"py(
out = grad(lambda x, y, z: jnp.sum(x * y * z), argnums=(0, 2))(ar(2), ar(2) + 1, ar(2) + 2)
)py")
      .Twin([] {
        return grad<0, 2>([](Array x, Array y, Array z) { return sum(x * y * z); })(
            Ar({2}), Ar({2}) + 1, Ar({2}) + 2);
      });
  t.Gives("autodiff/grad_of_a_tree", R"py(
out = grad(lambda p: jnp.sum(p['w'] * p['b']))({'w': ar(2), 'b': jnp.float32(3)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return grad([](Map p) { return sum(p["w"] * p["b"]); })(
            Map{{"w", Ar({2})}, {"b", scalar(3.0f)}});
      });
  t.Gives("autodiff/grad_has_aux", R"py(
out = grad(lambda x: (jnp.sum(x * x), x + 1), has_aux=True)(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return std::pair(sum(x * x), x + 1); })(Ar({3})); });
  t.Gives("autodiff/value_and_grad", R"py(
out = jax.value_and_grad(lambda x: jnp.sum(x * x))(ar(3))
)py")
      .Twin([] { return value_and_grad([](Array x) { return sum(x * x); })(Ar({3})); });
  t.Gives("autodiff/value_and_grad_has_aux", R"py(
out = jax.value_and_grad(lambda x: (jnp.sum(x * x), {'y': x + 1}), has_aux=True)(ar(3))
)py")
      .Twin([] {
        return value_and_grad([](Array x) {
          return std::pair(sum(x * x), std::map<std::string, Array>{{"y", x + 1}});
        })(Ar({3}));
      });
  t.Gives("autodiff/grad_of_a_number", R"py(
out = grad(lambda x: x * x)(3.0)
)py")
      .Twin([] { return grad([](Array x) { return x * x; })(3.0); })
      .Note("the gradient of a Python number is weakly typed");
  t.Gives("autodiff/grad_of_what_is_not_used", R"py(
out = grad(lambda x, y: jnp.sum(y), argnums=0)(ar(3), ar(3))
)py")
      .Twin([] { return grad([](Array, Array y) { return sum(y); })(Ar({3}), Ar({3})); });
  t.Fails("autodiff/grad_of_a_vector", "Gradient only defined for scalar-output functions", R"py(
grad(lambda x: x * x)(ar(3))
)py")
      .Twin([] { grad([](Array x) { return x * x; })(Ar({3})); });
  t.Fails("autodiff/grad_by_an_integer", "-valued inputs (input dtype that is a", R"py(
grad(lambda x: jnp.sum(x * x))(ints(3))
)py")
      .Twin([] { grad([](Array x) { return sum(x * x); })(Ints({3})); });
  t.Fails("autodiff/grad_of_an_integer_result", "real-valued outputs", R"py(
grad(lambda x: jnp.sum(x).astype(jnp.int32))(ar(3))
)py")
      .Twin([] { grad([](Array x) { return sum(x).astype(kS32); })(Ar({3})); });
  t.Fails("autodiff/grad_of_a_complex_result", "real-valued outputs", R"py(
grad(lambda x: jnp.sum(x * 1j))(ar(3))
)py")
      .Twin([] { grad([](Array x) { return sum(lax::complex(x, x)); })(Ar({3})); });
  t.Fails("autodiff/grad_of_no_argument", "", R"py(
grad(lambda: jnp.float32(1))()
)py")
      .DoesNotCompile();
  t.Fails("autodiff/argnums_out_of_range", "argnums", R"py(
grad(lambda x: jnp.sum(x), argnums=2)(ar(3))
)py")
      .DoesNotCompile();
  t.Gives("autodiff/grad_allow_int", R"py(
out = grad(lambda x, i: jnp.sum(x) * i[0], argnums=(0, 1), allow_int=True)(ar(2), ints(1) + 3)
)py")
      .Twin([] {
        const auto f = [](Array x, Array i) { return sum(x) * i[0]; };
        return grad<0, 1>(f, {.allow_int = true})(Ar({2}), Ints({1}) + 3);
      });
  t.Gives("autodiff/grad_of_bf16", R"py(
out = grad(lambda x: jnp.sum(x * x))(jnp.array([1., 2.], jnp.bfloat16))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(x * x); })(array<float>({1, 2}).astype(kBF16));
      });
  t.Gives("autodiff/grad_through_a_cast", R"py(
out = grad(lambda x: jnp.sum(x.astype(jnp.float32) * 3))(jnp.array([1., 2.], jnp.bfloat16))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(x.astype(kF32) * 3); })(
            array<float>({1, 2}).astype(kBF16));
      });
  t.Gives("autodiff/grad_through_an_integer_cast_is_zero", R"py(
out = grad(lambda x: jnp.sum(x.astype(jnp.int32).astype(jnp.float32)))(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return sum(x.astype(kS32).astype(kF32)); })(Ar({3})); });
  t.Gives("autodiff/stop_gradient", R"py(
out = grad(lambda x: jnp.sum(x * lax.stop_gradient(x)))(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return sum(x * stop_gradient(x)); })(Ar({3})); });
  t.Gives("autodiff/grad_of_grad", R"py(
out = grad(lambda x: jnp.sum(grad(lambda y: jnp.sum(y ** 3))(x)))(ar(3))
)py")
      .Twin([] {
        return grad([](Array x) {
          return sum(grad([](Array y) { return sum(lax::integer_pow(y, 3)); })(x));
        })(Ar({3}));
      });
  t.Gives("autodiff/grad_of_jit", R"py(
out = grad(jit(lambda x: jnp.sum(x * x)))(ar(3))
)py")
      .Twin([] { return grad(jit([](Array x) { return sum(x * x); }))(Ar({3})); });
  t.Gives("autodiff/jit_of_grad", R"py(
out = jit(grad(lambda x: jnp.sum(x * x)))(ar(3))
)py")
      .Twin([] { return jit(grad([](Array x) { return sum(x * x); }))(Ar({3})); });
  t.Gives("autodiff/grad_by_a_closure", R"py(
w = ar(3)
out = grad(lambda s: jnp.sum(s * w))(jnp.float32(2))
)py")
      .Twin([] {
        const Array w = Ar({3});
        return grad([&](Array s) { return sum(s * w); })(scalar(2.0f));
      });
  t.Gives("autodiff/max_shares_among_equals", R"py(
out = grad(lambda x: jnp.max(x))(jnp.array([1., 3., 3.], jnp.float32))
)py")
      .Twin([] {
        return grad([](Array x) { return max(x); })(array<float>({1, 3, 3}));
      });
  t.Gives("autodiff/maximum_of_equals_is_half", R"py(
out = grad(lambda x, y: jnp.sum(jnp.maximum(x, y)), (0, 1))(jnp.array([1., 2.]), jnp.array([1., 0.]))
)py")
      .Twin([] {
        return grad<0, 1>([](Array x, Array y) { return sum(maximum(x, y)); })(
            array<float>({1, 2}), array<float>({1, 0}));
      });
  t.Gives("autodiff/abs_and_sign_at_zero", R"py(
out = grad(lambda x: jnp.sum(jnp.abs(x) + jnp.sign(x)))(jnp.array([-1., 0., 2.]))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(abs(x) + sign(x)); })(array<float>({-1, 0, 2}));
      });
  t.Gives("autodiff/relu_at_zero", R"py(
out = grad(lambda x: jnp.sum(jax.nn.relu(x)))(jnp.array([-1., 0., 2.]))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(relu(x)); })(array<float>({-1, 0, 2}));
      });
  t.Gives("autodiff/where_is_not_differentiated_by_its_condition", R"py(
out = grad(lambda x: jnp.sum(jnp.where(x > 1, x * x, -x)))(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return sum(where(x > 1, x * x, -x)); })(Ar({3})); });
  t.Gives("autodiff/sort_moves_cotangents", R"py(
out = grad(lambda x: jnp.sum(jnp.sort(x) * ar(3)))(jnp.array([2., 0., 1.]))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(sort(x) * Ar({3})); })(array<float>({2, 0, 1}));
      });
  t.Gives("autodiff/gather_adds_duplicates", R"py(
out = grad(lambda x: jnp.sum(x[jnp.array([0, 0, 2])]))(ar(3))
)py")
      .Twin([] {
        const Array at = array<int32_t>({0, 0, 2});
        return grad([&](Array x) { return sum(x[at]); })(Ar({3}));
      });
  t.Gives("autodiff/set_drops_what_is_overwritten", R"py(
out = grad(lambda x, v: jnp.sum(x.at[1].set(v) * ar(3)), (0, 1))(ar(3), jnp.float32(5))
)py")
      .Twin([] {
        return grad<0, 1>([](Array x, Array v) { return sum(x.at(1).set(v) * Ar({3})); })(
            Ar({3}), scalar(5.0f));
      });
  t.Gives("autodiff/integer_pow_at_zero", R"py(
out = grad(lambda x: jnp.sum(x ** 2))(jnp.zeros(2, jnp.float32))
)py")
      .Twin([] { return grad([](Array x) { return sum(power(x, 2)); })(zeros({2})); });
  t.Gives("autodiff/cumsum_is_transposed", R"py(
out = grad(lambda x: jnp.sum(jnp.cumsum(x) * ar(3)))(ar(3))
)py")
      .Twin([] { return grad([](Array x) { return sum(cumsum(x) * Ar({3})); })(Ar({3})); });
  // ---- jvp. ----
  t.Gives("autodiff/jvp", R"py(
out = jvp(lambda x: x * x, (ar(3),), (jnp.ones(3, jnp.float32),))
)py")
      .Twin([] {
        return jvp([](Array x) { return x * x; }, std::tuple(Ar({3})), std::tuple(ones({3})));
      });
  t.Gives("autodiff/jvp_of_two", R"py(
out = jvp(lambda x, y: x * y, (ar(2), ar(2) + 1), (jnp.ones(2, jnp.float32), ar(2)))
)py")
      .Twin([] {
        return jvp([](Array x, Array y) { return x * y; }, std::tuple(Ar({2}), Ar({2}) + 1),
                   std::tuple(ones({2}), Ar({2})));
      });
  t.Gives("autodiff/jvp_of_a_tree", R"py(
out = jvp(lambda p: {'y': p['a'] * p['b']}, ({'a': ar(2), 'b': ar(2) + 1},), ({'a': ar(2) + 1, 'b': ar(2)},))
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return jvp(
            [](Map p) {
              return Map{{"y", p["a"] * p["b"]}};
            },
            std::tuple(Map{{"a", Ar({2})}, {"b", Ar({2}) + 1}}),
            std::tuple(Map{{"a", Ar({2}) + 1}, {"b", Ar({2})}}));
      });
  t.Fails("autodiff/jvp_of_another_tree", "must have the same tree structure", R"py(
jvp(lambda p: p[0], ((ar(2), ar(2)),), ((ar(2),),))
)py")
      .Twin([] {
        using List = std::vector<Array>;
        jvp([](List p) { return p[0]; }, std::tuple(List{Ar({2}), Ar({2})}),
            std::tuple(List{Ar({2})}));
      })
      .Note("a compile-time error in C++ where the kinds of trees differ");
  t.Fails("autodiff/jvp_of_another_dtype", "dtypes must be equal", R"py(
jvp(lambda x: x, (ar(2),), (ints(2),))
)py")
      .Twin([] { jvp([](Array x) { return x; }, std::tuple(Ar({2})), std::tuple(Ints({2}))); });
  t.Fails("autodiff/jvp_of_another_shape", "jvp called with different primal and tangent shapes",
          R"py(
jvp(lambda x: x, (ar(2),), (ar(3),))
)py")
      .Twin([] { jvp([](Array x) { return x; }, std::tuple(Ar({2})), std::tuple(Ar({3}))); });
  t.Gives("autodiff/jvp_of_jvp", R"py(
f = lambda x: jvp(lambda y: y * y * y, (x,), (jnp.float32(1),))[1]
out = jvp(f, (jnp.float32(3),), (jnp.float32(1),))
)py")
      .Twin([] {
        const auto f = [](Array x) {
          return jvp([](Array y) { return y * y * y; }, std::tuple(x), std::tuple(ones({}))).second;
        };
        return jvp(f, std::tuple(scalar(3.0f)), std::tuple(ones({})));
      });
  // ---- vjp. ----
  t.Gives("autodiff/vjp", R"py(
y, back = vjp(lambda x, w: x * w, ar(3), ar(3) + 1)
out = y, back(jnp.ones(3, jnp.float32))
)py")
      .Twin([] {
        const auto [y, back] =
            vjp([](Array x, Array w) { return x * w; }, std::tuple(Ar({3}), Ar({3}) + 1));
        return std::pair(y, back(ones({3})));
      });
  t.Gives("autodiff/vjp_of_a_tree", R"py(
y, back = vjp(lambda x: {'a': x, 'b': 2 * x}, ar(2))
out = y, back({'a': ar(2), 'b': ar(2) + 1})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        const auto [y, back] = vjp([](Array x) { return Map{{"a", x}, {"b", 2 * x}}; }, Ar({2}));
        return std::pair(y, back(Map{{"a", Ar({2})}, {"b", Ar({2}) + 1}}));
      });
  t.Gives("autodiff/vjp_called_twice", R"py(
_, back = vjp(lambda x: x * x, ar(2))
out = back(jnp.ones(2, jnp.float32)), back(ar(2))
)py")
      .Twin([] {
        const auto back = vjp([](Array x) { return x * x; }, Ar({2})).second;
        const auto first = back(ones({2}));
        return std::pair(first, back(Ar({2})));
      });
  t.Fails("autodiff/vjp_of_another_shape", "type (e.g. shape/dtype) for argument to VJP function",
          R"py(
_, back = vjp(lambda x: x * x, ar(2))
back(ar(3))
)py")
      .Twin([] { vjp([](Array x) { return x * x; }, Ar({2})).second(Ar({3})); });
  t.Fails("autodiff/vjp_of_another_dtype", "type (e.g. shape/dtype) for argument to VJP function",
          R"py(
_, back = vjp(lambda x: x * x, ar(2))
back(ints(2))
)py")
      .Twin([] { vjp([](Array x) { return x * x; }, Ar({2})).second(Ints({2})); });
  t.Fails("autodiff/vjp_of_another_tree", "tree structure", R"py(
_, back = vjp(lambda x: (x, x), ar(2))
back((ar(2), ar(2), ar(2)))
)py")
      .Twin([] {
        using List = std::vector<Array>;
        vjp([](Array x) { return List{x, x}; }, Ar({2})).second(List{Ar({2}), Ar({2}), Ar({2})});
      })
      .Note("a compile-time error in C++ where the kinds of trees differ");
  t.Gives("autodiff/vjp_has_aux", R"py(
y, back, aux = vjp(lambda x: (x * x, x + 1), ar(2), has_aux=True)
out = y, back(ar(2)), aux
)py")
      .Twin([] {
        const auto [y, back, aux] =
            vjp([](Array x) { return std::pair(x * x, x + 1); }, Ar({2}), has_aux);
        return std::tuple(y, back(Ar({2})), aux);
      });
  // ---- linearize and linear_transpose. ----
  t.Gives("autodiff/linearize", R"py(
y, fwd = linearize(lambda x: x * x, ar(3))
out = y, fwd(jnp.ones(3, jnp.float32)), fwd(ar(3))
)py")
      .Twin([] {
        const auto [y, fwd] = linearize([](Array x) { return x * x; }, Ar({3}));
        const Array first = fwd(ones({3}));
        return std::tuple(y, first, fwd(Ar({3})));
      });
  t.Fails("autodiff/linearize_of_another_tangent_shape",
          "linearized function called on tangent values inconsistent", R"py(
linearize(lambda x: x * x, ar(3))[1](ar(2))
)py")
      .Twin([] { linearize([](Array x) { return x * x; }, Ar({3})).second(Ar({2})); });
  t.Fails("autodiff/linearize_of_another_tangent_dtype",
          "linearized function called on tangent values inconsistent", R"py(
linearize(lambda x: x * x, ar(3))[1](ints(3))
)py")
      .Twin([] { linearize([](Array x) { return x * x; }, Ar({3})).second(Ints({3})); });
  t.Gives("autodiff/linear_transpose", R"py(
out = linear_transpose(lambda x: 3 * x[:2], ar(3))(ar(2) + 1)
)py")
      .Twin([] {
        return linear_transpose(
            [](Array x) {
              return 3 * x[Index(Slice{std::nullopt, 2})];
            },
            Ar({3}))(Ar({2}) + 1);
      });
  t.Gives("autodiff/linear_transpose_of_a_type", R"py(
out = linear_transpose(lambda x: jnp.sum(x), jax.ShapeDtypeStruct((3,), jnp.float32))(jnp.float32(2))
)py")
      .Twin([] {
        return linear_transpose([](Array x) { return sum(x); }, abstract({3}))(scalar(2.0f));
      });
  t.Gives("autodiff/linear_transpose_of_integers", R"py(
out = linear_transpose(lambda x: 3 * x, ints(3))(ints(3))
)py")
      .Twin([] { return linear_transpose([](Array x) { return 3 * x; }, Ints({3}))(Ints({3})); });
  t.Fails("autodiff/linear_transpose_of_another_cotangent",
          "cotangent type does not match function output", R"py(
linear_transpose(lambda x: 3 * x, ar(3))(ar(2))
)py")
      .Twin([] { linear_transpose([](Array x) { return 3 * x; }, Ar({3}))(Ar({2})); });
  t.Fails("autodiff/linear_transpose_of_a_product", "", R"py(
linear_transpose(lambda x: x * x, ar(3))(ar(3))
)py")
      .Twin([] { linear_transpose([](Array x) { return x * x; }, Ar({3}))(Ar({3})); });
  t.Fails("autodiff/linear_transpose_of_float_to_integer", "linear_transpose only supports", R"py(
linear_transpose(lambda x: x.astype(jnp.int32), ar(3))(ints(3))
)py")
      .Twin([] { linear_transpose([](Array x) { return x.astype(kS32); }, Ar({3}))(Ints({3})); });
  // ---- Jacobians. ----
  t.Gives("autodiff/jacfwd", R"py(
out = jax.jacfwd(lambda x: x[:2] * x[1:])(ar(3) + 1)
)py")
      .Twin([] {
        return jacfwd([](Array x) { return x[Slice{.stop = 2}] * x[Slice{1}]; })(Ar({3}) + 1);
      });
  t.Gives("autodiff/jacrev", R"py(
out = jax.jacrev(lambda x: x[:2] * x[1:])(ar(3) + 1)
)py")
      .Twin([] {
        return jacrev([](Array x) { return x[Slice{.stop = 2}] * x[Slice{1}]; })(Ar({3}) + 1);
      });
  t.Gives("autodiff/jacobian_of_matrices", R"py(
out = jax.jacfwd(lambda x: x.T * 2)(ar(2, 3))
)py")
      .Twin([] {
        return jacfwd([](Array x) { return x.T() * 2; })(Ar({2, 3}));
      });
  t.Gives("autodiff/jacrev_of_trees", R"py(
out = jax.jacrev(lambda p: {'u': p['a'] * 2, 'v': p['b'] * p['a'][0]})({'a': ar(2), 'b': ar(3)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return jacrev([](Map p) {
          return Map{{"u", p["a"] * 2}, {"v", p["b"] * p["a"][0]}};
        })(Map{{"a", Ar({2})}, {"b", Ar({3})}});
      });
  t.Gives("autodiff/jacfwd_argnums", R"py(
out = jax.jacfwd(lambda x, y: x * y, argnums=(0, 1))(ar(2), ar(2) + 1)
)py")
      .Twin([] {
        return jacfwd<0, 1>([](Array x, Array y) { return x * y; })(Ar({2}), Ar({2}) + 1);
      });
  t.Gives("autodiff/jacrev_has_aux", R"py(
out = jax.jacrev(lambda x: (x * x, jnp.sum(x)), has_aux=True)(ar(2))
)py")
      .Twin([] {
        return jacrev([](Array x) { return std::pair(x * x, sum(x)); }, has_aux)(Ar({2}));
      });
  t.Gives("autodiff/hessian", R"py(
out = jax.hessian(lambda x: jnp.sum(x ** 3) + x[0] * x[1])(ar(2) + 1)
)py")
      .Twin([] {
        return hessian([](Array x) { return sum(lax::integer_pow(x, 3)) + x[0] * x[1]; })(Ar({2}) +
                                                                                          1);
      });
  t.Gives("autodiff/hessian_of_trees", R"py(
out = jax.hessian(lambda p: p['a'] * p['a'] * p['b'])({'a': jnp.float32(2), 'b': jnp.float32(3)})
)py")
      .Twin([] {
        using Map = std::map<std::string, Array>;
        return hessian([](Map p) { return p["a"] * p["a"] * p["b"]; })(
            Map{{"a", scalar(2.0f)}, {"b", scalar(3.0f)}});
      });
  t.Fails("autodiff/jacfwd_by_an_integer", "jacfwd requires real-valued inputs", R"py(
jax.jacfwd(lambda x: x * x)(ints(2))
)py")
      .Twin([] { jacfwd([](Array x) { return x * x; })(Ints({2})); });
  t.Fails("autodiff/jacrev_of_an_integer_result", "real-valued outputs", R"py(
jax.jacrev(lambda x: x.astype(jnp.int32))(ar(2))
)py")
      .Twin([] { jacrev([](Array x) { return x.astype(kS32); })(Ar({2})); });
  // ---- checkpoint. ----
  t.Gives("autodiff/checkpoint", R"py(
out = grad(lambda x: jnp.sum(jax.checkpoint(lambda y: y * y * y)(x)))(ar(3))
)py")
      .Twin([] {
        return grad([](Array x) { return sum(checkpoint([](Array y) { return y * y * y; })(x)); })(
            Ar({3}));
      });
  t.Gives("autodiff/checkpoint_of_checkpoint", R"py(
f = jax.checkpoint(lambda y: jax.checkpoint(lambda z: z * z)(y) * y)
out = grad(lambda x: jnp.sum(f(x)))(ar(3))
)py")
      .Twin([] {
        const auto f =
            checkpoint([](Array y) { return checkpoint([](Array z) { return z * z; })(y) * y; });
        return grad([&](Array x) { return sum(f(x)); })(Ar({3}));
      });
  t.Gives("autodiff/checkpoint_runs_as_the_function", R"py(
out = jax.checkpoint(lambda x, y: (x * y, y))(ar(2), ar(2))
)py")
      .Twin([] {
        return checkpoint([](Array x, Array y) { return std::pair(x * y, y); })(Ar({2}), Ar({2}));
      });
  t.Gives("autodiff/checkpoint_under_vmap", R"py(
out = vmap(grad(jax.checkpoint(lambda x: jnp.sum(x * x))))(ar(2, 3))
)py")
      .Twin([] {
        return vmap(grad(checkpoint([](Array x) { return sum(x * x); })))(Ar({2, 3}));
      });
  t.Gives("autodiff/checkpoint_policies_do_not_change_values", R"py(
f = lambda policy: grad(lambda x: jnp.sum(jax.checkpoint(lambda y: (y @ y) * y, policy=policy)(x)))(ar(2, 2))
p = jax.checkpoint_policies
out = f(p.everything_saveable), f(p.nothing_saveable), f(p.dots_saveable)
)py")
      .Twin([] {
        const auto f = [](const CheckpointPolicy& policy) {
          const auto body =
              checkpoint([](Array y) { return matmul(y, y) * y; }, {.policy = policy});
          return grad([&](Array x) { return sum(body(x)); })(Ar({2, 2}));
        };
        return std::tuple(f(checkpoint_policies::everything_saveable),
                          f(checkpoint_policies::nothing_saveable),
                          f(checkpoint_policies::dots_saveable));
      });
  t.Gives("autodiff/checkpoint_static_argnums", R"py(
f = jax.checkpoint(lambda x, n: x ** n, static_argnums=1)
out = grad(lambda x: jnp.sum(f(x, 3)))(ar(3))
)py")
      .Twin([] {
        const auto f = checkpoint([](Array x, int n) { return lax::integer_pow(x, n); });
        return grad([&](Array x) { return sum(f(x, 3)); })(Ar({3}));
      });
  t.Gives("autodiff/hessian_vector_product", R"py(
f = lambda x: jnp.sum(x ** 3)
out = jvp(grad(f), (ar(3),), (jnp.ones(3, jnp.float32),))[1]
)py")
      .Twin([] {
        const auto f = [](Array x) { return sum(lax::integer_pow(x, 3)); };
        return jvp(grad(f), std::tuple(Ar({3})), std::tuple(ones({3}))).second;
      });
}

}  // namespace tessera::semantics
