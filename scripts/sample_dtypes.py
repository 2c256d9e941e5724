"""Maps the names of dtypes in samples to NumPy's dtypes, for the scripts that run samples in JAX."""
import ml_dtypes
import numpy as np

DTYPES = {"bool": np.bool_, "s8": np.int8, "s16": np.int16, "s32": np.int32, "s64": np.int64,
          "u8": np.uint8, "u16": np.uint16, "u32": np.uint32, "u64": np.uint64,
          "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
          "c64": np.complex64, "c128": np.complex128,
          "f4e2m1fn": ml_dtypes.float4_e2m1fn, "f8e3m4": ml_dtypes.float8_e3m4,
          "f8e4m3": ml_dtypes.float8_e4m3, "f8e4m3fn": ml_dtypes.float8_e4m3fn,
          "f8e4m3b11fnuz": ml_dtypes.float8_e4m3b11fnuz,
          "f8e4m3fnuz": ml_dtypes.float8_e4m3fnuz, "f8e5m2": ml_dtypes.float8_e5m2,
          "f8e5m2fnuz": ml_dtypes.float8_e5m2fnuz, "f8e8m0fnu": ml_dtypes.float8_e8m0fnu,
          "s4": ml_dtypes.int4, "u4": ml_dtypes.uint4, "s2": ml_dtypes.int2, "u2": ml_dtypes.uint2}
