// TESSERA_FOR_EACH(macro, a, b, c) expands to macro(a) macro(b) macro(c), for at most 25 arguments.
//
// A macro cannot expand itself. So each argument leaves a TESSERA_FOR_NEXT_ behind, which is
// expanded when the text is scanned again. TESSERA_EXPAND_ causes enough scans.
#pragma once

#define TESSERA_FOR_EACH(macro, ...) \
  __VA_OPT__(TESSERA_EXPAND_(TESSERA_FOR_NEXT_(macro, __VA_ARGS__)))

#define TESSERA_PARENS_ ()
#define TESSERA_EXPAND_(...) TESSERA_EXPAND3_(TESSERA_EXPAND3_(TESSERA_EXPAND3_(__VA_ARGS__)))
#define TESSERA_EXPAND3_(...) TESSERA_EXPAND2_(TESSERA_EXPAND2_(TESSERA_EXPAND2_(__VA_ARGS__)))
#define TESSERA_EXPAND2_(...) TESSERA_EXPAND1_(TESSERA_EXPAND1_(TESSERA_EXPAND1_(__VA_ARGS__)))
#define TESSERA_EXPAND1_(...) __VA_ARGS__
#define TESSERA_FOR_NEXT_(macro, first, ...) \
  macro(first) __VA_OPT__(TESSERA_FOR_NEXT_AGAIN_ TESSERA_PARENS_(macro, __VA_ARGS__))
#define TESSERA_FOR_NEXT_AGAIN_() TESSERA_FOR_NEXT_
