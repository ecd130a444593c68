// jit/gpu/cuda_tensor.c: TENSOR statements in CUDA C: asynchronous copies, loads of matrices and
// multiplications, by PTX instructions of sm_80 and later.
//
// Each instruction is one line of inline PTX, which the fake NVRTC recognises. The functions follow
// the layouts of ir/tensor.h. A multiplication loads the fragments of the next steps before it
// computes those of the current ones.
#include <assert.h>

#include "ir/tensor.h"
#include "jit/gpu/cuda.h"

// ---- instructions

typedef struct instruction {
  const char* name;  // of the type that has the instruction
  const char* ptx;   // shape and types
  qn_dtype_t rows;
  qn_dtype_t columns;
} instruction_t;

static const instruction_t instructions[] = {
    {"qn_mma_f16", "m16n8k16.row.col.f32.f16.f16.f32", QN_DTYPE_F16, QN_DTYPE_F16},
    {"qn_mma_bf16", "m16n8k16.row.col.f32.bf16.bf16.f32", QN_DTYPE_BF16, QN_DTYPE_BF16},
    {"qn_mma_tf32", "m16n8k8.row.col.f32.tf32.tf32.f32", QN_DTYPE_F32, QN_DTYPE_F32},
    {"qn_mma_s8_s8", "m16n8k32.row.col.s32.s8.s8.s32", QN_DTYPE_I8, QN_DTYPE_I8},
    {"qn_mma_s8_u8", "m16n8k32.row.col.s32.s8.u8.s32", QN_DTYPE_I8, QN_DTYPE_U8},
    {"qn_mma_u8_s8", "m16n8k32.row.col.s32.u8.s8.s32", QN_DTYPE_U8, QN_DTYPE_I8},
    {"qn_mma_u8_u8", "m16n8k32.row.col.s32.u8.u8.s32", QN_DTYPE_U8, QN_DTYPE_U8},
};

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

// qn_copy: copies of 16 bytes, or of parts of them where the address is less aligned; single
// elements are loaded and stored. qn_matrix: lane l addresses row l % 8 of matrix l / 8. Of those
// of rows the first two differ in their lines, of those of columns in their steps.
static const char* const helpers[] = {
    "QN_FN uint qn_shared_at(const void* at) {",
    "  return uint(__cvta_generic_to_shared(at));",
    "}",
    "QN_FN void qn_copy_16(uint to, const void* from, uint size) {",
    "  asm volatile(\"cp.async.cg.shared.global [%0], [%1], 16, %2;\" : : \"r\"(to), \"l\"(from), "
    "\"r\"(size) : \"memory\");",
    "}",
    "QN_FN void qn_copy_4(uint to, const void* from, uint size) {",
    "  asm volatile(\"cp.async.ca.shared.global [%0], [%1], 4, %2;\" : : \"r\"(to), \"l\"(from), "
    "\"r\"(size) : \"memory\");",
    "}",
    "template <class T, class I>",
    "QN_FN void qn_copy(T* to, const T* from, I valid) {",
    "  constexpr int N = 16 / int(sizeof(T));",
    "  const int count = valid >= I(N) ? N : valid > I(0) ? int(valid) : 0;",
    "  const int size = count * int(sizeof(T));",
    "  const uint at = qn_shared_at(to), place = uint(qn_u64(from));",
    "  const char* const bytes = (const char*)from;",
    "  if (count > 0 && (place & 15u) == 0u) {",
    "    qn_copy_16(at, from, uint(size));",
    "  } else if (count > 0 && (place & 3u) == 0u) {",
    "#pragma unroll",
    "    for (int i = 0; i < 16; i += 4) {",
    "      const int left = size > i ? size - i : 0;",
    "      qn_copy_4(at + uint(i), left > 0 ? bytes + i : bytes, uint(left < 4 ? left : 4));",
    "    }",
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

void qn__cuda_tensor_helpers(qn__gpu_printer_t* p) {
  for (size_t i = 0; i < QN_COUNT_OF(instructions); ++i) {
    if (p->dialect_bits & ((uint64_t)QN__CUDA_USES_MULTIPLY << i)) {
      instruction_helper(p, &instructions[i]);
    }
  }
  for (size_t i = 0; i < QN_COUNT_OF(helpers); ++i) qn__kprint_line(p, "%s", helpers[i]);
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

static void print_multiply(qn__gpu_printer_t* p, const qn__ir_tensor_t* tensor) {
  const qn__ir_buffer_t *rows = tensor->refs[1].buffer, *columns = tensor->refs[2].buffer;
  size_t i = 0;
  while (i < QN_COUNT_OF(instructions) &&
         (instructions[i].rows != rows->dtype || instructions[i].columns != columns->dtype)) {
    ++i;
  }
  if (QN_NEVER(i == QN_COUNT_OF(instructions))) return;
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
      break;
    case QN__TENSOR_MULTIPLY:
      print_multiply(p, tensor);
      break;
    case QN__TENSOR_PRODUCT:
      (void)QN_NEVER(true);  // only passes for CPUs make one
      break;
  }
}
