"""Makes StableHLO artifacts of the programs that JAX has exported or lowered.

JAX itself is imported only when it is used."""

from __future__ import annotations

from typing import Any

from tessera._trees import Trees


def artifact_of(program: Any) -> tuple[bytes, Trees] | None:
    """Returns the StableHLO artifact of a jax.export.Exported or a jax.stages.Lowered, and its
    pytrees. Returns None for other objects."""
    if hasattr(program, "mlir_module_serialized"):
        trees = Trees(
            program.in_tree, program.out_tree, program.module_kept_var_idx, program.platforms
        )
        return bytes(program.mlir_module_serialized), trees
    if not (hasattr(program, "compiler_ir") and hasattr(program, "args_info")):
        return None
    import jax
    import jax.extend.mlir
    from jaxlib.mlir.dialects import stablehlo

    # Write the same StableHLO version as jax.export: one that readers of four weeks ago know. The
    # last argument of the function below keeps the shardings.
    version = stablehlo.get_version_from_compatibility_requirement(
        stablehlo.StablehloCompatibilityRequirement.WEEK_4
    )
    module = program.compiler_ir("stablehlo")
    artifact = jax.extend.mlir.serialize_portable_artifact(module, version, True)
    trees = Trees(
        jax.tree_util.tree_structure(program.args_info),
        jax.tree_util.tree_structure(program.out_info),
        None,
    )
    return bytes(artifact), trees
