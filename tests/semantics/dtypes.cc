// Rows about dtypes and weak types in transformations. A row is a program in Python, whose results
// in JAX are recorded, and its twin: the same program in C++ with the SDK. semantics_test.cc runs
// the twins and compares their results with the recorded ones.
#include "tests/semantics/rows.h"

namespace tessera::semantics {

// Adds the rows "dtypes/...". A plain number in a program has a weak type: it takes the dtype of
// the array that it meets. The rows show which dtype each result has.
void AddDtypes(Table& t) {
  t.Gives("dtypes/number_takes_the_dtype", R"py(
out = jnp.array([1., 2.], jnp.bfloat16) * 3, ints(2) + 1, jnp.array([1, 2], jnp.uint8) * 2
)py")
      .Twin([] {
        return std::tuple(array<float>({1, 2}).astype(kBF16) * 3, Ints({2}) + 1,
                          array<uint8_t>({1, 2}) * 2);
      });
  t.Gives("dtypes/float_number_with_integers", R"py(
out = ints(2) * 0.5
)py")
      .Twin([] { return Ints({2}) * 0.5; });
  t.Gives("dtypes/number_with_bools", R"py(
out = jnp.array([True, False]) * 3, jnp.array([True, False]) + 0.5
)py")
      .Twin([] {
        const Array b = equal(arange(2), 0);
        return std::tuple(b * 3, b + 0.5);
      });
  t.Gives("dtypes/bf16_with_f16", R"py(
out = jnp.ones(2, jnp.bfloat16) + jnp.ones(2, jnp.float16)
)py")
      .Twin([] { return ones({2}, kBF16) + ones({2}, kF16); });
  t.Gives("dtypes/integers_with_floats", R"py(
out = ints(2) + jnp.ones(2, jnp.float16), jnp.ones(2, jnp.uint8) * jnp.ones(2, jnp.bfloat16)
)py")
      .Twin(
          [] { return std::pair(Ints({2}) + ones({2}, kF16), ones({2}, kU8) * ones({2}, kBF16)); });
  t.Gives("dtypes/signed_with_unsigned", R"py(
out = jnp.ones(2, jnp.int8) + jnp.ones(2, jnp.uint8), jnp.ones(2, jnp.int16) + jnp.ones(2, jnp.uint8)
)py")
      .Twin([] {
        return std::pair(ones({2}, kS8) + ones({2}, kU8), ones({2}, kS16) + ones({2}, kU8));
      });
  t.Gives("dtypes/integers_divide_as_floats", R"py(
out = ints(3) / 2, (ints(3) / ints(3)[:1].at[0].set(4))
)py")
      .Twin([] {
        return std::pair(Ints({3}) / 2,
                         Ints({3}) / Ints({3})[Index(Slice{std::nullopt, 1})].at(0).set(4));
      });
  t.Gives("dtypes/comparison_is_bool", R"py(
out = ints(3) < 1.5
)py")
      .Twin([] { return Ints({3}) < 1.5; });
  t.Gives("dtypes/mean_of_integers", R"py(
out = jnp.mean(ints(4)), jnp.sum(jnp.ones(3, jnp.int8)), jnp.sum(jnp.array([True, True]))
)py")
      .Twin([] {
        return std::tuple(mean(Ints({4})), sum(ones({3}, kS8)), sum(equal(zeros({2}), 0)));
      });
  t.Gives("dtypes/where_of_numbers", R"py(
out = jnp.where(jnp.array([True, False]), ar(2), 3), jnp.where(jnp.array([True, False]), 1, 2.5)
)py")
      .Twin([] {
        const Array p = equal(arange(2), 0);
        return std::pair(where(p, Ar({2}), 3), where(p, 1, 2.5));
      });
  t.Gives("dtypes/weak_type_of_ops_on_numbers", R"py(
f = jit(lambda n: (see(n), see(n * 2), see(-n), see(n + 1.), see(n * jnp.float32(1))))
f(3)
out = seen
)py")
      .Twin([] {
        Seen see;
        jit([&](Array n) {
          see(n);
          see(n * 2);
          see(-n);
          see(n + 1.0);
          return see(n * ones({}));
        })(3);
        return see.types();
      });
  t.Gives("dtypes/weak_type_through_grad", R"py(
out = jax.value_and_grad(lambda x: x * x)(2.0)
)py")
      .Twin([] { return value_and_grad([](Array x) { return x * x; })(2.0); });
  t.Gives("dtypes/weak_type_through_vmap", R"py(
vmap(lambda x, n: see(n) * see(x * n), (0, None))(jnp.ones(2, jnp.bfloat16), 3)
out = seen
)py")
      .Twin([] {
        Seen see;
        vmap(
            [&](Array x, Array n) {
              const Array seen = see(n);
              return seen * see(x * n);
            },
            {0, None})(ones({2}, kBF16), Weak(3));
        return see.types();
      });
  t.Gives("dtypes/weak_type_of_full_like", R"py(
out = typeof(jnp.full_like(jnp.ones(2, jnp.bfloat16), 3.)), typeof(jnp.zeros_like(ints(2)))
)py")
      .Twin([] {
        const Array a = full_like(ones({2}, kBF16), 3.0);
        return std::pair(a.type().ToString(), zeros_like(Ints({2})).type().ToString());
      });
  t.Gives("dtypes/weak_tangent_of_a_strong_primal", R"py(
out = jvp(lambda x: x * x, (jnp.float32(2),), (1.0,))
)py")
      .Twin([] {
        return jvp([](Array x) { return x * x; }, std::tuple(scalar(2.0f)), std::tuple(Weak(1.0)));
      });
  t.Gives("dtypes/while_carry_of_a_number", R"py(
out = lax.while_loop(lambda c: c < 3, lambda c: c + 1, 0)
)py")
      .Twin([] {
        return while_loop([](Array c) { return c < 3; }, [](Array c) { return c + 1; }, Weak(0));
      });
  t.Gives("dtypes/scan_carry_that_becomes_strong", R"py(
out = lax.scan(lambda c, x: (c * x, None), 1, ints(3) + 1)[0]
)py")
      .Twin([] {
        return scan([](Array c, Array x) { return std::pair(c * x, None); }, Weak(1), Ints({3}) + 1)
            .first;
      });
  t.Fails("dtypes/scan_carry_that_widens", "carry input and carry output must have equal types",
          R"py(
lax.scan(lambda c, x: (c * x, None), jnp.bfloat16(1), ar(3))
)py")
      .Twin([] {
        scan([](Array c, Array x) { return std::pair(c * x, None); }, ones({}, kBF16), Ar({3}));
      });
  t.Gives("dtypes/cond_of_a_number_and_an_array", R"py(
out = lax.cond(True, lambda: 1, lambda: jnp.int32(2))
)py")
      .Twin([] {
        const Array one = Weak(1);
        return cond(
            true, [&] { return one; }, [] { return scalar(int32_t{2}); });
      });
  t.Gives("dtypes/astype_strengthens", R"py(
f = jit(lambda n: see(n.astype(jnp.float32)))
f(2.0)
out = seen
)py")
      .Twin([] {
        Seen see;
        jit([&](Array n) { return see(n.astype(kF32)); })(2.0);
        return see.types();
      });
  t.Gives("dtypes/set_casts_to_the_array", R"py(
out = ints(3).at[1].set(7), jnp.ones(2, jnp.bfloat16).at[0].add(0.5)
)py")
      .Twin([] { return std::pair(Ints({3}).at(1).set(7), ones({2}, kBF16).at(0).add(0.5)); });
  t.Gives("dtypes/grad_dtype_is_the_arguments", R"py(
f = lambda a, b: jnp.sum(a.astype(jnp.float32) * b)
out = grad(f, (0, 1))(jnp.ones(2, jnp.float16), jnp.ones(2, jnp.float32))
)py")
      .Twin([] {
        return grad<0, 1>([](Array a, Array b) { return sum(a.astype(kF32) * b); })(ones({2}, kF16),
                                                                                    ones({2}));
      });
  t.Gives("dtypes/psum_keeps_the_dtype", R"py(
f = lambda a, b: (lax.psum(a, 'i'), lax.psum(b, 'i'))
out = shard_map(f, mesh=auto(i=2), in_specs=P('i'), out_specs=P())(jnp.ones(2, jnp.bfloat16), jnp.ones(2, jnp.int8))
)py")
      .Twin([] {
        const auto f = [](Array a, Array b) {
          const Array first = lax::psum(a, "i");
          return std::pair(first, lax::psum(b, "i"));
        };
        return shard_map(f, Auto({{"i", 2}}), P("i"), P())(ones({2}, kBF16), ones({2}, kS8));
      });
  t.Gives("dtypes/int8_wraps", R"py(
out = jnp.array([100], jnp.int8) * 2, jnp.array([250], jnp.uint8) + 10
)py")
      .Twin([] { return std::pair(array<int8_t>({100}) * 2, array<uint8_t>({250}) + 10); });
  t.Gives("dtypes/float_to_integer_truncates", R"py(
out = jnp.array([-1.7, 2.9]).astype(jnp.int32)
)py")
      .Twin([] {
        return array<float>({-1.7f, 2.9f}).astype(kS32);
      });
  t.Gives("dtypes/power_of_integers", R"py(
out = ints(4) ** 2, ar(4) ** 2, jnp.power(ar(3), 3)
)py")
      .Twin([] { return std::tuple(power(Ints({4}), 2), power(Ar({4}), 2), power(Ar({3}), 3)); });
  t.Fails("dtypes/lax_is_strict", "dtypes", R"py(
lax.add(ar(2), ints(2))
)py")
      .Twin([] { lax::add(Ar({2}), Ints({2})); });
  t.Fails("dtypes/lax_does_not_broadcast", "", R"py(
lax.add(ar(2, 2), ar(2))
)py")
      .Twin([] {
        lax::add(Ar({2, 2}), Ar({2}));
      });
  t.Fails("dtypes/shapes_that_do_not_broadcast", "ncompatible shapes for broadcasting", R"py(
ar(2) + ar(3)
)py")
      .Twin([] { Ar({2}) + Ar({3}); });
  t.Fails("dtypes/bits_of_a_float", "", R"py(
ar(2) & ar(2)
)py")
      .Twin([] { lax::bitwise_and(Ar({2}), Ar({2})); });
  t.Gives("dtypes/complex_gradient_of_a_real_loss", R"py(
out = grad(lambda z: jnp.sum(jnp.real(z * jnp.conj(z))))(jnp.array([1 + 2j, 3 - 1j], jnp.complex64))
)py")
      .Twin([] {
        return grad([](Array z) { return sum(real(z * conj(z))); })(
            array<std::complex<float>>({{1, 2}, {3, -1}}));
      });
}

}  // namespace tessera::semantics
