// SPDX-License-Identifier: Apache-2.0
// ir/parser_habit.c: words of other languages, and their equivalents in this language.
//
// They appear only in the help of error messages.
#include "ir/parser.h"

const char* qn__parser_habit(qn__parser_habit_t kind, qn_str_t word) {
  static const struct {
    qn__parser_habit_t kind;
    const char* word;
    const char* help;
  } habits[] = {
      {QN__HABIT_DTYPE, "float", "did you mean 'f32'?"},
      {QN__HABIT_DTYPE, "float32", "did you mean 'f32'?"},
      {QN__HABIT_DTYPE, "double", "did you mean 'f64'?"},
      {QN__HABIT_DTYPE, "float64", "did you mean 'f64'?"},
      {QN__HABIT_DTYPE, "half", "did you mean 'f16'?"},
      {QN__HABIT_DTYPE, "float16", "did you mean 'f16'?"},
      {QN__HABIT_DTYPE, "bfloat16", "did you mean 'bf16'?"},
      {QN__HABIT_DTYPE, "f8e4m3", "did you mean 'f8e4m3fn'?"},
      {QN__HABIT_DTYPE, "float8_e4m3fn", "did you mean 'f8e4m3fn'?"},
      {QN__HABIT_DTYPE, "float8_e5m2", "did you mean 'f8e5m2'?"},
      {QN__HABIT_DTYPE, "f4e2m1", "did you mean 'f4e2m1fn'?"},
      {QN__HABIT_DTYPE, "float4_e2m1fn", "did you mean 'f4e2m1fn'?"},
      {QN__HABIT_DTYPE, "int4", "did you mean 'i4'?"},
      {QN__HABIT_DTYPE, "uint4", "did you mean 'u4'?"},
      {QN__HABIT_DTYPE, "int", "did you mean 'i64'?"},
      {QN__HABIT_DTYPE, "int8", "did you mean 'i8'?"},
      {QN__HABIT_DTYPE, "int32", "did you mean 'i32'?"},
      {QN__HABIT_DTYPE, "int64", "did you mean 'i64'?"},
      {QN__HABIT_DTYPE, "uint8", "did you mean 'u8'?"},
      {QN__HABIT_DTYPE, "in", "write the access before the name: in x: f32[n]"},
      {QN__HABIT_DTYPE, "out", "write the access before the name: out x: f32[n]"},
      {QN__HABIT_DTYPE, "inout", "write the access before the name: inout x: f32[n]"},
      {QN__HABIT_CALL, "fabs", "did you mean 'abs'?"},
      {QN__HABIT_CALL, "expf", "did you mean 'exp'?"},
      {QN__HABIT_CALL, "mod", "did you mean '%'?"},
      {QN__HABIT_CALL, "floordiv", "did you mean '//'?"},
      {QN__HABIT_CALL, "floormod", "did you mean '%'?"},
      {QN__HABIT_CALL, "if_then_else", "did you mean '? :'?"},
      {QN__HABIT_CALL, "where", "did you mean 'select'?"},
      {QN__HABIT_CALL, "maximum", "did you mean 'max'?"},
      {QN__HABIT_CALL, "minimum", "did you mean 'min'?"},
      {QN__HABIT_CALL, "cast", "a conversion is written f32(x)"},
      {QN__HABIT_CALL, "reinterpret", "did you mean 'bitcast'?"},
      {QN__HABIT_CALL, "range", "a range is written 0..n"},
      {QN__HABIT_CALL, "len", "the extent is a name in the shape: x: f32[n]"},
      {QN__HABIT_CALL, "sum", "a reduction is written sum i in 0..n { x[i] }"},
      {QN__HABIT_CALL, "prod", "a reduction is written prod i in 0..n { x[i] }"},
      {QN__HABIT_INFIX, "and", "did you mean '&&'?"},
      {QN__HABIT_INFIX, "or", "did you mean '||'?"},
      {QN__HABIT_INFIX, "not", "did you mean '!'?"},
      {QN__HABIT_INFIX, "mod", "did you mean '%'?"},
      {QN__HABIT_INFIX, "if", "a choice is written c ? a : b"},
      {QN__HABIT_STMT, "var", "did you mean 'let'?"},
      {QN__HABIT_STMT, "float", "did you mean 'let'?"},
      {QN__HABIT_STMT, "double", "did you mean 'let'?"},
      {QN__HABIT_STMT, "int", "did you mean 'let'?"},
      {QN__HABIT_STMT, "__syncthreads", "did you mean 'barrier;'?"},
      {QN__HABIT_STMT, "__threadfence", "did you mean 'fence;'?"},
      {QN__HABIT_STMT, "elif", "write else if"},
  };
  for (size_t i = 0; i < QN_COUNT_OF(habits); i++) {
    if (habits[i].kind == kind && qn__str_equal(word, qn__str(habits[i].word))) {
      return habits[i].help;
    }
  }
  return NULL;
}
