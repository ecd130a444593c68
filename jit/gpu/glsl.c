// SPDX-License-Identifier: Apache-2.0
// jit/gpu/glsl.c: the GLSL dialect: the beginning of a text, a kernel's head and foot.
//
// A kernel is a compute shader. Bindings of set 0 are storage buffers: the buffers and workspaces
// in the order of the kernel's arguments, the error record, and the scalars that do not fit into
// the push constants. A buffer begins at some element of its binding; that number comes with the
// scalars (qn__gpu_push_layout). Scalars are read as 32-bit words, so that no target needs small or
// 64-bit types in push constants.
//
// A buffer that a kernel with barriers or fences writes is `coherent`; otherwise the threads of a
// block would not see each other's stores. A text requires the extensions that the target has and
// no others. Naming an unused extension costs nothing, since SPIR-V's capabilities follow from use.
#include "jit/gpu/glsl.h"

#include <assert.h>

#include "devices/gpu/push.h"

bool qn__glsl_has(const qn__gpu_printer_t* p, const char* option) {
  bool value = false;
  return qn_target_get_bool(p->options->target, option, &value) && value;
}

int64_t qn__glsl_number(const qn__gpu_printer_t* p, const char* option) {
  int64_t value = 0;
  (void)qn_target_get_int(p->options->target, option, &value);
  return value;
}

// ---- the text's beginning

// Optional floating-point modes of SPIR-V: the numbers of each execution mode and its capability in
// SPV_KHR_float_controls. glslang keeps only the last width of a mode. So f32 comes last, since
// most kernels have no f64. jit/shaderc/controls.c adds the modes of f64 where a kernel needs them.
static const struct {
  const char* option;
  uint32_t capability;
  uint32_t mode;
  uint32_t width;
} float_controls[] = {
    {"supports_denorm_preserve_float64", 4464, 4459, 64},
    {"supports_denorm_preserve_float32", 4464, 4459, 32},
    {"supports_signed_zero_inf_nan_preserve_float64", 4466, 4461, 64},
    {"supports_signed_zero_inf_nan_preserve_float32", 4466, 4461, 32},
    {"supports_rounding_rte_float64", 4467, 4462, 64},
    {"supports_rounding_rte_float32", 4467, 4462, 32},
};

static void require(qn__gpu_printer_t* p, const char* extension) {
  qn__kprint_line(p, "#extension %s : require", extension);
}

static void text_begin(qn__gpu_printer_t* p) {
  qn__kprint_line(p, "#version 450");
  require(p, "GL_EXT_control_flow_attributes");
  require(p, "GL_KHR_memory_scope_semantics");
  if (p->options->has_int64) require(p, "GL_EXT_shader_explicit_arithmetic_types_int64");
  if (qn__glsl_has(p, "supports_storage_8bit")) require(p, "GL_EXT_shader_8bit_storage");
  if (qn__glsl_has(p, "supports_storage_16bit")) require(p, "GL_EXT_shader_16bit_storage");
  if (qn__glsl_has(p, "supports_atomic_int64")) require(p, "GL_EXT_shader_atomic_int64");
  if (qn__glsl_has(p, "supports_atomic_float32")) require(p, "GL_EXT_shader_atomic_float");
  if (qn__glsl_has(p, "supports_subgroup_shuffle")) {
    require(p, "GL_KHR_shader_subgroup_basic");
    require(p, "GL_KHR_shader_subgroup_shuffle");
  }
  bool has_controls = false;
  for (size_t i = 0; i < QN_COUNT_OF(float_controls); ++i) {
    if (float_controls[i].width == 64 && !p->options->has_float64) continue;
    if (!qn__glsl_has(p, float_controls[i].option)) continue;
    if (!has_controls) require(p, "GL_EXT_spirv_intrinsics");
    has_controls = true;
    qn__kprint_line(p,
                    "spirv_execution_mode(extensions = [\"SPV_KHR_float_controls\"], capabilities "
                    "= [%u], %u, %u);",
                    float_controls[i].capability, float_controls[i].mode, float_controls[i].width);
  }
}

// ---- the kernel's head

typedef struct bindings {
  uint32_t buffer_count;
  uint32_t record;
  uint32_t overflow;  // where the push constants are a storage buffer
  bool is_overflow;
  uint32_t push_bytes;
  uint32_t offsets[QN_GPU_MAX_ARGS + 2];
} bindings_t;

static bool lay_out(qn__gpu_printer_t* p, bindings_t* out) {
  const qn__gpu_kernel_t* plan = p->kernel->plan;
  if (plan->arg_count > QN_GPU_MAX_ARGS) {
    qn__kprint_unsupported(p, "a kernel has %u arguments; the most is %u", plan->arg_count,
                           (uint32_t)QN_GPU_MAX_ARGS);
    return false;
  }
  *out = (bindings_t){0};
  for (uint32_t i = 0; i < plan->arg_count; ++i)
    out->buffer_count += p->kernel->nodes[i].buffer != NULL;
  out->record = out->buffer_count;
  out->overflow = out->buffer_count + (plan->has_record ? 1 : 0);
  out->push_bytes =
      qn__gpu_push_layout(plan->args, plan->arg_count, plan->has_record, out->offsets);
  out->is_overflow = out->push_bytes > qn__glsl_number(p, "max_push_constants_bytes");
  return true;
}

static void declare_buffers(qn__gpu_printer_t* p, const bindings_t* bindings) {
  const qn__gpu_kernel_ir_t* kernel = p->kernel;
  for (uint32_t i = 0; i < bindings->buffer_count; ++i) {
    const qn__ir_buffer_t* buffer = kernel->nodes[i].buffer;
    assert(buffer);  // buffers are the first arguments
    qn__gpu_glsl_storage_t storage = qn__gpu_glsl_storage(p, buffer);
    bool is_written = kernel->plan->args[i].is_written;
    const char* access = !is_written                       ? "readonly "
                         : p->has_barrier || p->is_ordered ? "coherent "
                                                           : "";
    const char* name = qn__kprint_buffer(p, buffer);
    if (!storage.type) {
      qn__kprint_unsupported(p, "buffer '%s' holds %s, which this target cannot (option %s)",
                             buffer->name, qn_dtype_text(buffer->dtype), storage.missing);
      return;
    }
    qn__kprint_line(p, "layout(set = 0, binding = %u, std430) %sbuffer Q%s { %s %s[]; };", i,
                    access, name, storage.type, name);
    qn__glsl_word_helpers(p, buffer, is_written);
  }
  if (kernel->plan->has_record) {
    qn__kprint_line(p,
                    "layout(set = 0, binding = %u, std430) buffer Qrecord { uint qn_record[]; };",
                    bindings->record);
  }
  if (bindings->is_overflow) {
    qn__kprint_line(p,
                    "layout(set = 0, binding = %u, std430) readonly buffer Qpush { uint qn_push[]; "
                    "};",
                    bindings->overflow);
  } else if (bindings->push_bytes > 0) {
    qn__kprint_line(p, "layout(push_constant, std430) uniform Qpush { uint qn_push[%u]; };",
                    bindings->push_bytes / 4);
  }
}

static void declare_shared(qn__gpu_printer_t* p) {
  bool has_fence_word = p->is_ordered && qn__glsl_has(p, "supports_fence_by_atomic");
  if (has_fence_word) qn__kprint_line(p, "shared uint qn_fence;");
  uint64_t total = has_fence_word ? 4 : 0;
  for (uint32_t i = 0; i < p->shared_count; ++i) {
    const qn__ir_buffer_t* buffer = p->shared[i];
    qn__gpu_glsl_storage_t storage = qn__gpu_glsl_storage(p, buffer);
    int64_t count = qn__kprint_element_count(buffer);
    if (count < 1) count = 1;
    // The verifier limits the size of shared memory.
    total = (total + storage.element_bytes - 1) /
            (storage.element_bytes ? storage.element_bytes : 1) * storage.element_bytes;
    total += (uint64_t)count * storage.element_bytes;
    qn__kprint_line(p, "shared %s %s[%" PRId64 "];", storage.type ? storage.type : "float",
                    qn__kprint_buffer(p, buffer), count);
  }
  int64_t limit = qn__glsl_number(p, "max_shared_memory_per_block");
  if (total > (uint64_t)limit) {
    qn__kprint_unsupported(p,
                           "a block needs %" PRIu64
                           " bytes of shared memory; the target has %" PRId64
                           " (max_shared_memory_per_block)",
                           total, limit);
    return;
  }
  p->kernel->plan->shared_bytes = (uint32_t)total;
}

// Returns a scalar's words in qn_push as a value of its compute type.
static const char* scalar(qn__gpu_printer_t* p, const qn__ir_var_t* var, uint32_t offset) {
  qn_dtype_t dtype = var->dtype;
  uint32_t bits = qn__dtype_bits(dtype);
  assert(bits > 0 && offset % (bits / 8) == 0);
  const char* word = qn__kprint_text(p, "qn_push[%u]", offset / 4);
  if (bits < 32) {
    uint32_t shift = offset % 4 * 8;
    if (qn__dtype_is_signed(dtype)) {
      return qn__kprint_text(p, "bitfieldExtract(int(%s), %u, %u)", word, shift, bits);
    }
    const char* mask = bits == 8 ? "0xffu" : "0xffffu";
    const char* part = qn__kprint_text(p, "%s >> %u & %s", word, shift, mask);
    if (dtype == QN_DTYPE_BOOL) return qn__kprint_text(p, "(%s) != 0u", part);
    return qn__dtype_is_float(dtype) ? qn__kprint_convert(p, QN_DTYPE_F32, dtype, part) : part;
  }
  if (dtype == QN_DTYPE_U32) return word;
  if (dtype == QN_DTYPE_F32) return qn__kprint_text(p, "uintBitsToFloat(%s)", word);
  if (dtype == QN_DTYPE_I32 || qn__kprint_is_narrow_var(p, var)) {
    return qn__kprint_text(p, "int(%s)", word);
  }
  const char* pack = dtype == QN_DTYPE_F64 ? "packDouble2x32" : "packUint2x32";
  const char* both = qn__kprint_text(p, "%s(uvec2(%s, qn_push[%u]))", pack, word, offset / 4 + 1);
  return dtype == QN_DTYPE_I64 ? qn__kprint_text(p, "qn_i64(%s)", both) : both;
}

static void check_scalar(qn__gpu_printer_t* p, const qn__ir_var_t* var) {
  bool is_int = (var->dtype == QN_DTYPE_I64 && !qn__kprint_is_narrow_var(p, var)) ||
                var->dtype == QN_DTYPE_U64;
  const char* missing = NULL;
  if (is_int && !p->options->has_int64) missing = "supports_int64";
  if (var->dtype == QN_DTYPE_F64 && !p->options->has_float64) missing = "supports_float64";
  if (!missing) return;
  qn__kprint_unsupported(p, "'%s' is %s, which this target cannot (option %s)", var->name,
                         qn_dtype_text(var->dtype), missing);
}

static void read_constants(qn__gpu_printer_t* p, const bindings_t* bindings) {
  const qn__gpu_kernel_ir_t* kernel = p->kernel;
  const qn__gpu_kernel_t* plan = kernel->plan;
  for (uint32_t i = 0; i < bindings->buffer_count; ++i) {
    qn__kprint_line(p, "const uint %s_at = qn_push[%u];",
                    qn__kprint_buffer(p, kernel->nodes[i].buffer), bindings->offsets[i] / 4);
  }
  for (uint32_t i = bindings->buffer_count; i < plan->arg_count; ++i) {
    const qn__ir_var_t* var = kernel->nodes[i].var;
    check_scalar(p, var);
    qn__kprint_line(p, "const %s %s = %s;",
                    qn__kprint_type(var->dtype, qn__kprint_is_narrow_var(p, var)),
                    qn__kprint_var(p, var), scalar(p, var, bindings->offsets[i]));
  }
  if (plan->has_record) {
    qn__kprint_line(p, "const uint qn_record_at = qn_push[%u];",
                    bindings->offsets[plan->arg_count] / 4);
    qn__kprint_line(p, "const uint qn_tag = qn_push[%u];",
                    bindings->offsets[plan->arg_count + 1] / 4);
    // All threads of a launch take the same branch, because only earlier launches write other tags.
    qn__kprint_line(p, "const uint qn_failed = qn_record[qn_record_at];");
    qn__kprint_line(p, "if (qn_failed != 0u && qn_failed != qn_tag) return;");
  }
}

static void kernel_begin(qn__gpu_printer_t* p) {
  const qn__gpu_kernel_ir_t* kernel = p->kernel;
  bindings_t* bindings = qn__arena_alloc(p->arena, sizeof *bindings);
  if (!bindings) {
    qn__kprint_fail_status(p, qn__out_of_memory("the bindings of a kernel"));
    return;
  }
  if (!lay_out(p, bindings)) return;
  if (kernel->plan->thread_count == 0) {
    qn__kprint_line(p, "layout(local_size_x_id = 0) in;");
  } else {
    qn__kprint_line(p, "layout(local_size_x = %u) in;", kernel->plan->thread_count);
  }
  declare_buffers(p, bindings);
  qn__glsl_check_types(p);
  declare_shared(p);
  qn__glsl_exact_helpers(p);
  if (p->has_fail) {
    qn__glsl_fail_helper(p, bindings->offsets[kernel->plan->arg_count] / 4,
                         bindings->offsets[kernel->plan->arg_count + 1] / 4);
  }
  qn__kprint_open(p, "void main()");
  read_constants(p, bindings);
  const char* type = kernel->is_narrow ? "uint" : "qn_i64";
  qn__kprint_line(p, "const uint qn_thread = gl_LocalInvocationID.x;");
  qn__kprint_line(p, "const uint qn_threads = gl_WorkGroupSize.x;");
  qn__kprint_line(p, "const %s qn_block_first = %s(gl_WorkGroupID.x);", type, type);
  qn__kprint_line(p, "const %s qn_block_step = %s(gl_NumWorkGroups.x);", type, type);
}

static void table(qn__gpu_printer_t* p, const char* name, const char* type, size_t count,
                  const char* elements) {
  qn__kprint_line(p, "const %s %s[%zu] = %s[%zu](%s);", type, name, count, type, count, elements);
}

const qn__gpu_dialect_t qn__gpu_dialect_glsl = {
    .name = "glsl",
    .is_glsl = true,
    .wraps_signed = true,
    .needs_all_threads = true,
    // Not [[unroll]]: spirv-opt unrolls such loops, and the copies lose the decoration that forbids
    // the contraction of arithmetic.
    .unroll = NULL,
    .arithmetic = qn__glsl_arithmetic,
    .text_begin = text_begin,
    .kernel_begin = kernel_begin,
    .table = table,
    .load = qn__glsl_load,
    .store = qn__glsl_store,
    .atomic = qn__glsl_atomic,
    .exchange = qn__glsl_exchange,
    .barrier = qn__glsl_barrier,
    .fence = qn__glsl_fence,
    .fail = qn__glsl_fail,
};
