// SPDX-License-Identifier: Apache-2.0
// jit/gpu/cuda_tensor.c: TENSOR statements in CUDA C: asynchronous copies, loads of matrices and
// multiplications, by PTX instructions of sm_80 and later, and of sm_90a for warpgroups.
//
// Each instruction is one line of inline PTX, which the fake NVRTC recognises. The functions follow
// the layouts of ir/tensor.h. A multiplication loads the fragments of the next steps before it
// computes those of the current ones. A warpgroup's reads its operands from shared memory itself,
// by descriptors: address, distance of panels, distance of groups of 8 rows, swizzle of 128 bytes
// (PTX ISA, "Asynchronous warpgroup level matrix shared memory layout").
#include <assert.h>

#include "ir/tensor.h"
#include "jit/gpu/cuda.h"

// ---- instructions

typedef struct instruction {
  const char* name;       // of the type that has the instruction
  const char* ptx;        // shape and types
  const char* group_ptx;  // types of a warpgroup's; NULL: there is none
  qn_dtype_t rows;
  qn_dtype_t columns;
} instruction_t;

static const instruction_t instructions[] = {
    {"qn_mma_f16", "m16n8k16.row.col.f32.f16.f16.f32", "f32.f16.f16", QN_DTYPE_F16, QN_DTYPE_F16},
    {"qn_mma_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", "f32.bf16.bf16", QN_DTYPE_BF16,
     QN_DTYPE_BF16},
    {"qn_mma_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", NULL, QN_DTYPE_F32, QN_DTYPE_F32},
    {"qn_mma_s8_s8", "m16n8k32.row.col.s32.s8.s8.s32", "s32.s8.s8", QN_DTYPE_I8, QN_DTYPE_I8},
    {"qn_mma_s8_u8", "m16n8k32.row.col.s32.s8.u8.s32", "s32.s8.u8", QN_DTYPE_I8, QN_DTYPE_U8},
    {"qn_mma_u8_s8", "m16n8k32.row.col.s32.u8.s8.s32", "s32.u8.s8", QN_DTYPE_U8, QN_DTYPE_I8},
    {"qn_mma_u8_u8", "m16n8k32.row.col.s32.u8.u8.s32", "s32.u8.u8", QN_DTYPE_U8, QN_DTYPE_U8},
};

enum {
  instruction_count = QN_COUNT_OF(instructions),
  group_column_tiles = 8,  // the columns of a warpgroup's instruction are a multiple of 64,
  group_widths = 4,        // and at most 256
};

static uint64_t group_bit(size_t instruction, size_t width) {
  return (uint64_t)QN__CUDA_USES_MULTIPLY
         << (instruction_count + instruction * group_widths + width);
}

// Return the numbers and the operands of a warpgroup's sums, for inline PTX.
static const char* sum_places(qn__gpu_printer_t* p, size_t count) {
  const char* text = "%0";
  for (size_t i = 1; i < count; ++i) text = qn__kprint_text(p, "%s, %%%zu", text, i);
  return text;
}
static const char* sum_operands(qn__gpu_printer_t* p, const char* name, size_t count,
                                bool is_float) {
  const char* text = "";
  for (size_t i = 0; i < count; ++i) {
    text = qn__kprint_text(p, "%s%s\"+%s\"(%s[%zu])", text, i ? ", " : "", is_float ? "f" : "r",
                           name, i);
  }
  return text;
}

// Writes the instruction of a warpgroup for 64 * (width + 1) columns.
static void group_helper(qn__gpu_printer_t* p, const instruction_t* instruction, size_t width) {
  bool is_float = qn__dtype_is_float(instruction->rows);
  size_t columns = (width + 1) * group_column_tiles * QN__TENSOR_COLUMNS, sums = columns / 2;
  qn__kprint_line(p, "struct %s_%zu {", instruction->name, columns);
  qn__kprint_line(p, "  template <int A_ACROSS, int B_ACROSS>");
  qn__kprint_line(p, "  QN_FN void run(%s* d, qn_u64 a, qn_u64 b) {", is_float ? "float" : "int");
  qn__kprint_line(p,
                  "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n%zuk%" PRIu32
                  ".%s {%s}, %%%zu, %%%zu, 1%s;\" : %s : \"l\"(a), \"l\"(b)%s);",
                  columns, qn__tensor_steps(instruction->rows), instruction->group_ptx,
                  sum_places(p, sums), sums, sums + 1,
                  is_float ? qn__kprint_text(p, ", 1, 1, %%%zu, %%%zu", sums + 2, sums + 3) : "",
                  sum_operands(p, "d", sums, is_float),
                  is_float ? ", \"n\"(A_ACROSS), \"n\"(B_ACROSS)" : "");
  qn__kprint_line(p, "  }");
  qn__kprint_line(p, "};");
}

static void instruction_helper(qn__gpu_printer_t* p, const instruction_t* instruction) {
  bool is_float = qn__dtype_is_float(instruction->rows);
  const char* c = is_float ? "f" : "r";
  qn__kprint_line(p, "struct %s {", instruction->name);
  qn__kprint_line(p, "  QN_FN void run(%s* d, const uint* a, const uint* b) {",
                  is_float ? "float" : "int");
  qn__kprint_line(
      p,
      "    asm volatile(\"mma.sync.aligned.%s {%%0, %%1, %%2, %%3}, {%%4, %%5, %%6, %%7}, {%%8, "
      "%%9},"
      " {%%0, %%1, %%2, %%3};\" : \"+%s\"(d[0]), \"+%s\"(d[1]), \"+%s\"(d[2]), \"+%s\"(d[3]) :"
      " \"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3]), \"r\"(b[0]), \"r\"(b[1]));",
      instruction->ptx, c, c, c, c);
  qn__kprint_line(p, "  }");
  qn__kprint_line(p, "  QN_FN void round(uint* r) {");
  if (instruction->rows == QN_DTYPE_F32) {
    qn__kprint_line(p, "#pragma unroll");
    qn__kprint_line(p, "    for (int i = 0; i < 4; ++i) {");
    qn__kprint_line(p,
                    "      asm volatile(\"cvt.rna.tf32.f32 %%0, %%1;\" : \"=r\"(r[i]) : "
                    "\"f\"(__uint_as_float(r[i])));");
    qn__kprint_line(p, "    }");
  }
  qn__kprint_line(p, "  }");
  qn__kprint_line(p, "};");
}

// qn_copy: copies of 16 bytes, or of parts of them where the address is less aligned. Elements are
// loaded and stored one by one where only some are wanted: no byte beyond them is read. qn_matrix:
// lane l addresses row l % 8 of matrix l / 8. Of those of rows the first two differ in their lines,
// of those of columns in their steps.
static const char* const helpers[] = {
    "QN_FN uint qn_shared_at(const void* at) {",
    "  return uint(__cvta_generic_to_shared(at));",
    "}",
    "QN_FN void qn_copy_16(uint to, const void* from) {",
    "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16;\" : : \"r\"(to), \"l\"(from) : "
    "\"memory\");",
    "}",
    "QN_FN void qn_copy_4(uint to, const void* from) {",
    "  asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4;\" : : \"r\"(to), \"l\"(from) : "
    "\"memory\");",
    "}",
    "template <class T, class I>",
    "QN_FN void qn_copy(T* to, const T* from, I valid) {",
    "  constexpr int N = 16 / int(sizeof(T));",
    "  const int count = valid >= I(N) ? N : valid > I(0) ? int(valid) : 0;",
    "  const uint at = qn_shared_at(to), place = uint(qn_u64(from));",
    "  if (count == N && (place & 15u) == 0u) {",
    "    qn_copy_16(at, from);",
    "  } else if (count == N && (place & 3u) == 0u) {",
    "#pragma unroll",
    "    for (int i = 0; i < 16; i += 4) qn_copy_4(at + uint(i), (const char*)from + i);",
    "  } else {",
    "    T elements[N];",
    "#pragma unroll",
    "    for (int i = 0; i < N; ++i) {",
    "      elements[i] = T(0);",
    "      if (i < count) elements[i] = from[i];",
    "    }",
    "#pragma unroll",
    "    for (int i = 0; i < N; ++i) to[i] = elements[i];",
    "  }",
    "}",
    "QN_FN void qn_load_matrices(uint* r, uint at) {",
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\" : "
    "\"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(at) : \"memory\");",
    "}",
    "QN_FN void qn_load_transposed(uint* r, uint at) {",
    "  asm volatile(\"ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\" : "
    "\"=r\"(r[0]), \"=r\"(r[1]), \"=r\"(r[2]), \"=r\"(r[3]) : \"r\"(at) : \"memory\");",
    "}",
    "template <bool IS_COLUMNS, bool IS_ACROSS, int PITCH>",
    "QN_FN void qn_matrix(uint* r, uint at, uint row, uint chunk, uint lane, int tile, int step) {",
    "  constexpr uint CHUNKS = PITCH / 16;",
    "  const uint own = lane & 7u, low = lane >> 3 & 1u, high = lane >> 4 & 1u;",
    "  const uint phase = CHUNKS >= 8u ? own : own / (CHUNKS >= 8u ? 1u : 8u / CHUNKS) % CHUNKS;",
    "  const uint line = uint(tile) * 2u + (IS_COLUMNS ? high : low);",
    "  const uint steps = uint(step) * 2u + (IS_COLUMNS ? low : high);",
    "  row += (IS_ACROSS ? steps : line) * 8u + own;",
    "  chunk = (chunk + (IS_ACROSS ? line : steps)) ^ phase;",
    "  at += row * uint(PITCH) + chunk * 16u;",
    "  if (IS_ACROSS) {",
    "    qn_load_transposed(r, at);",
    "  } else {",
    "    qn_load_matrices(r, at);",
    "  }",
    "}",
    "template <class OP, int M, int N, int STEPS, bool A_ACROSS, bool B_ACROSS, int A_PITCH, int "
    "B_PITCH, class S>",
    "QN_FN void qn_multiply(S* sums, const void* a, uint a_row, uint a_chunk, const void* b, uint "
    "b_row, uint b_chunk, uint lane) {",
    "  const uint a_at = qn_shared_at(a), b_at = qn_shared_at(b);",
    "  uint ra[2][M][4], rb[2][N / 2][4];",
    "#pragma unroll",
    "  for (int s = 0; s <= STEPS; ++s) {",
    "    if (s < STEPS) {",
    "#pragma unroll",
    "      for (int i = 0; i < M; ++i) {",
    "        qn_matrix<false, A_ACROSS, A_PITCH>(ra[s & 1][i], a_at, a_row, a_chunk, lane, i, s);",
    "        OP::round(ra[s & 1][i]);",
    "      }",
    "#pragma unroll",
    "      for (int j = 0; j < N / 2; ++j) {",
    "        qn_matrix<true, B_ACROSS, B_PITCH>(rb[s & 1][j], b_at, b_row, b_chunk, lane, j, s);",
    "        OP::round(rb[s & 1][j]);",
    "      }",
    "    }",
    "    if (s == 0) continue;",
    "#pragma unroll",
    "    for (int i = 0; i < M; ++i) {",
    "#pragma unroll",
    "      for (int j = 0; j < N; ++j) {",
    "        OP::run(sums + (i * N + j) * 4, ra[(s - 1) & 1][i], rb[(s - 1) & 1][j >> 1] + (j & 1) "
    "* "
    "2);",
    "      }",
    "    }",
    "  }",
    "}",
};

static const char* const group_helpers[] = {
    "QN_FN qn_u64 qn_matrix_at(uint at) {",
    "  const qn_u64 panels = 8192u >> 4, groups = 1024u >> 4, swizzle = 1u;",
    "  return qn_u64((at & 0x3ffffu) >> 4) | panels << 16 | groups << 32 | swizzle << 62;",
    "}",
    "template <class OP, int STEPS, bool A_ACROSS, bool B_ACROSS, class S>",
    "QN_FN void qn_multiply_group(S* sums, const void* a, uint a_row, const void* b, uint b_row) {",
    "  uint a_at = qn_shared_at(a) + a_row * 128u, b_at = qn_shared_at(b) + b_row * 128u;",
    "  asm volatile(\"wgmma.fence.sync.aligned;\" : : : \"memory\");",
    "#pragma unroll",
    "  for (int s = 0; s < STEPS; ++s) {",
    "    OP::template run<A_ACROSS, B_ACROSS>(sums, qn_matrix_at(a_at), qn_matrix_at(b_at));",
    "    a_at += A_ACROSS ? 2048u : 32u;",
    "    b_at += B_ACROSS ? 2048u : 32u;",
    "  }",
    "  asm volatile(\"wgmma.commit_group.sync.aligned;\" : : : \"memory\");",
    "}",
};

void qn__cuda_tensor_helpers(qn__gpu_printer_t* p) {
  for (size_t i = 0; i < QN_COUNT_OF(instructions); ++i) {
    if (p->dialect_bits & ((uint64_t)QN__CUDA_USES_MULTIPLY << i)) {
      instruction_helper(p, &instructions[i]);
    }
  }
  for (size_t i = 0; i < QN_COUNT_OF(helpers); ++i) qn__kprint_line(p, "%s", helpers[i]);
  bool has_groups = false;
  for (size_t i = 0; i < instruction_count * group_widths; ++i) {
    if (!(p->dialect_bits & group_bit(i / group_widths, i % group_widths))) continue;
    group_helper(p, &instructions[i / group_widths], i % group_widths);
    has_groups = true;
  }
  for (size_t i = 0; has_groups && i < QN_COUNT_OF(group_helpers); ++i) {
    qn__kprint_line(p, "%s", group_helpers[i]);
  }
}

// ---- statements

static void print_copy(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor) {
  const char* address[2];
  for (int i = 0; i < 2; ++i) {
    const qn__ir_buffer_t* root;
    const char* index = qn__kprint_index(p, tensor->refs[i].buffer, tensor->refs[i].indices, &root);
    address[i] = qn__kprint_text(p, "%s + (%s)", qn__kprint_buffer(p, root), index);
  }
  bool is_narrow = qn__kprint_is_narrow(p, tensor->operand) ||
                   (tensor->operand->kind == QN__EXPR_INT && p->kernel->is_narrow);
  const char* valid = qn__kprint_i64(p, tensor->operand, is_narrow);
  qn__kprint_line(p, "qn_copy(%s, %s, %s);", address[0], address[1],
                  qn__kprint_text(p, is_narrow ? "int(%s)" : "qn_i64(%s)", valid));
}

// Prints an operand of a multiplication: its buffer, the row and the chunk where it begins.
static const char* print_operand(qn__gpu_printer_t* p, const qn__ir_tensor_ref_t* ref) {
  const char* at[2];
  for (int i = 0; i < 2; ++i) {
    at[i] = qn__kprint_ring(p, ref->indices[i], p->kernel->is_narrow);
  }
  size_t chunk = QN__TENSOR_CHUNK_BYTES / qn_dtype_size_bytes(ref->buffer->dtype);
  return qn__kprint_text(p, "%s, uint(%s), uint(%s) / %zuu", qn__kprint_buffer(p, ref->buffer),
                         at[0], at[1], chunk);
}

static int64_t pitch_bytes(const qn__ir_buffer_t* buffer) {
  assert(buffer->rank == 2 && buffer->shape[1]->kind == QN__EXPR_INT);  // qn__tensor_problem
  return buffer->shape[1]->int_value * (int64_t)qn_dtype_size_bytes(buffer->dtype);
}

// The rows of a warpgroup's operands have 128 bytes, and each stage begins at a multiple of eight.
static void print_multiply_group(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor,
                                 size_t instruction) {
  size_t width = tensor->tiles[1] / group_column_tiles - 1;
  p->dialect_bits |= group_bit(instruction, width);
  p->shared_align = 8 * QN__TENSOR_GROUP_CHUNKS * QN__TENSOR_CHUNK_BYTES;  // of a swizzle
  const char* operands[2];
  for (int s = 0; s < 2; ++s) {
    const qn__ir_tensor_ref_t* ref = &tensor->refs[s + 1];
    operands[s] = qn__kprint_text(p, "%s, uint(%s)", qn__kprint_buffer(p, ref->buffer),
                                  qn__kprint_ring(p, ref->indices[0], p->kernel->is_narrow));
  }
  qn__kprint_line(p, "qn_multiply_group<%s_%" PRIu32 ", %" PRIu32 ", %s, %s>(%s, %s, %s);",
                  instructions[instruction].name, tensor->tiles[1] * QN__TENSOR_COLUMNS,
                  tensor->depth / qn__tensor_steps(tensor->refs[1].buffer->dtype),
                  tensor->is_across[0] ? "true" : "false", tensor->is_across[1] ? "true" : "false",
                  qn__kprint_buffer(p, tensor->refs[0].buffer), operands[0], operands[1]);
}

static void print_multiply(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor) {
  const qn__ir_buffer_t *rows = tensor->refs[1].buffer, *columns = tensor->refs[2].buffer;
  size_t i = 0;
  while (i < QN_COUNT_OF(instructions) &&
         (instructions[i].rows != rows->dtype || instructions[i].columns != columns->dtype)) {
    ++i;
  }
  if (QN_NEVER(i == QN_COUNT_OF(instructions))) return;
  if (tensor->is_warpgroup) {
    print_multiply_group(p, tensor, i);
    return;
  }
  p->dialect_bits |= (uint64_t)QN__CUDA_USES_MULTIPLY << i;
  const char* lane = qn__kprint_ring(p, tensor->operand, p->kernel->is_narrow);
  const char* a = print_operand(p, &tensor->refs[1]);
  const char* b = print_operand(p, &tensor->refs[2]);
  qn__kprint_line(p,
                  "qn_multiply<%s, %" PRIu32 ", %" PRIu32 ", %" PRIu32 ", %s, %s, %" PRId64
                  ", %" PRId64 ">(%s, %s, %s, uint(%s));",
                  instructions[i].name, tensor->tiles[0], tensor->tiles[1],
                  tensor->depth / qn__tensor_steps(rows->dtype),
                  tensor->is_across[0] ? "true" : "false", tensor->is_across[1] ? "true" : "false",
                  pitch_bytes(rows), pitch_bytes(columns),
                  qn__kprint_buffer(p, tensor->refs[0].buffer), a, b, lane);
}

// The sums are operands, so that nothing reads them earlier.
static void print_finish(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor) {
  const qn__ir_buffer_t* sums = tensor->refs[0].buffer;
  size_t count = (size_t)qn__kprint_element_count(sums);
  const char* operands =
      sum_operands(p, qn__kprint_buffer(p, sums), count, qn__dtype_is_float(sums->dtype));
  qn__kprint_line(p, "asm volatile(\"wgmma.wait_group.sync.aligned 0;\" : %s : : \"memory\");",
                  operands);
}

void qn__cuda_tensor(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor) {
  p->dialect_bits |= QN__CUDA_USES_TENSOR;
  switch (tensor->kind) {
    case QN__TENSOR_COPY:
      print_copy(p, tensor);
      break;
    case QN__TENSOR_WAIT:
      qn__kprint_line(p, "asm volatile(\"cp.async.commit_group;\" : : : \"memory\");");
      qn__kprint_line(p, "asm volatile(\"cp.async.wait_group %" PRIu32 ";\" : : : \"memory\");",
                      tensor->count);
      // What threads have stored, a warpgroup's instructions see behind such a fence. Without the
      // state space it would also wait for global memory.
      if (tensor->is_warpgroup) {
        qn__kprint_line(p, "asm volatile(\"fence.proxy.async.shared::cta;\" : : : \"memory\");");
      }
      break;
    case QN__TENSOR_MULTIPLY:
      print_multiply(p, tensor);
      break;
    case QN__TENSOR_FINISH:
      print_finish(p, tensor);
      break;
    case QN__TENSOR_PRODUCT:
    case QN__TENSOR_TILES:
      (void)QN_NEVER(true);  // only passes for CPUs make one
      break;
  }
}
