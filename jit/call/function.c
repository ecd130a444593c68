// SPDX-License-Identifier: Apache-2.0
// jit/call/function.c: function cells, launches on a stream, and the statuses of kernel failures.
//
// Not here: the fast path of a call (call.c).
#include <stdatomic.h>

#include "base/alloc.h"
#include "base/argument.h"
#include "devices/cpu/cpu.h"
#include "ir/place.h"
#include "ir/shapes.h"
#include "ir/text.h"
#include "jit/call/dispatch.h"

// ---------------------------------------------------------------------------------- cells

static const qn__ir_func_t* find_function(const qn_module_t* module, const char* name) {
  for (size_t i = 0; i < module->body.function_count; i++) {
    if (strcmp(module->functions[i]->name, name) == 0) return module->functions[i];
  }
  return NULL;
}

static qn_status_t no_function(const qn_module_t* module, const char* name) {
  const char* nearest = NULL;
  size_t best = 3, count = module->body.function_count;
  for (size_t i = 0; i < count; i++) {
    const char* candidate = module->functions[i]->name;
    size_t distance = qn__edit_distance(qn__str(candidate), qn__str(name), best);
    if (distance >= best) continue;
    best = distance;
    nearest = candidate;
  }
  if (nearest) {
    return qn_status_make(QN_STATUS_NOT_FOUND, "no function '%s' in the module; did you mean '%s'?",
                          name, nearest);
  }
  return qn_status_make(QN_STATUS_NOT_FOUND,
                        "no function '%s' in the module; it has %zu, the first is '%s'", name,
                        count, count ? module->functions[0]->name : "");
}

static bool is_of_module(const qn_executable_t* executable, const qn_module_t* module) {
  return qn__hash128_equal(module->digest, executable->module_digest) &&
         memcmp(&module->second_digest, &executable->module_second_digest,
                sizeof module->second_digest) == 0;
}

static qn_status_t another_module(void) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                        "the executable was made of another module than the one given");
}

static void destroy_variant(qn_allocator_t allocator, qn__variant_t* variant) {
  qn__plan_destroy(variant->plan);
  qn__plan_destroy(variant->guard);
  if (variant->dispatch) qn__dispatch_close(variant->dispatch);
  qn__dispatch_release(variant->dispatch);
  qn_executable_release(variant->executable);
  qn_module_release(variant->module);
  qn__free(allocator, variant, sizeof *variant);
}

static qn_status_t fill_variant(qn__variant_t* variant) {
  qn_function_t* function = variant->function;
  qn_executable_t* executable = variant->executable;
  variant->ir = find_function(variant->module, function->ir->name);
  if (!variant->ir) return no_function(variant->module, function->ir->name);
  while (variant->index < executable->function_count &&
         strcmp(executable->functions[variant->index].name, variant->ir->name) != 0) {
    variant->index++;
  }
  if (QN_NEVER(variant->index == executable->function_count)) {
    return qn_status_make(QN_STATUS_INTERNAL, "the code of '%s' has no such function",
                          variant->ir->name);
  }
  if (variant->ir != function->ir) {
    QN_TRY(qn__signature_check(function->ir, variant->ir));
    QN_TRY(qn__plan_create(function->ir, function->device, false, function->allocator,
                           &variant->guard));
  }
  QN_TRY(qn__plan_create(variant->ir, function->device,
                         executable->functions[variant->index].has_32_bit_indices,
                         function->allocator, &variant->plan));
  if (executable->device_table == &qn__cpu_device_table) {
    variant->entry = qn__cpu_executable_entry(executable->inner, variant->index);
  }
  variant->needs_more = !variant->entry || variant->guard || variant->plan->deferred_count != 0 ||
                        variant->plan->arg_count == 0;
  return QN_OK;
}

qn_status_t qn__function_publish(qn_function_t* function, qn_executable_t* executable,
                                 qn_module_t* variant_module, qn__rank_t rank) {
  if (!is_of_module(executable, variant_module)) return another_module();
  if (memcmp(&executable->device, &function->device, sizeof function->device) != 0) {
    return qn_status_make(
        QN_STATUS_INVALID_ARGUMENT, "function '%s' is on device %s:%d, its new variant on %s:%d",
        function->ir->name, qn_device_type_text(function->device.type), function->device.id,
        qn_device_type_text(executable->device.type), executable->device.id);
  }
  qn__variant_t* variant = qn__alloc_zero(function->allocator, 1, sizeof *variant);
  if (!variant) return qn__out_of_memory("a function");
  // The executable may be of another object of the same module. Use the cell's, for its names.
  if (is_of_module(executable, function->module)) variant_module = function->module;
  qn_executable_retain(executable);
  qn_module_retain(variant_module);
  variant->function = function;
  variant->executable = executable;
  variant->module = variant_module;
  variant->rank = rank;
  qn_status_t status = fill_variant(variant);
  if (!qn_ok(status)) {
    destroy_variant(function->allocator, variant);
    return status;
  }
  // Acquire, because the loop reads the rank of a variant that another thread published.
  variant->next = atomic_load_explicit(&function->variant, memory_order_acquire);
  while (!variant->next || variant->next->rank < rank) {
    if (atomic_compare_exchange_weak_explicit(&function->variant, &variant->next, variant,
                                              memory_order_acq_rel, memory_order_acquire)) {
      assert(!variant->next || variant->next->rank < rank);
      return QN_OK;
    }
  }
  destroy_variant(function->allocator, variant);
  return QN_OK;
}

qn__rank_t qn__function_rank(const qn_function_t* function) {
  return atomic_load_explicit(&function->variant, memory_order_acquire)->rank;
}

bool qn_function_is_fallback(const qn_function_t* function) {
  if (!function) return false;
  const qn__dispatch_t* dispatch = qn__function_dispatch(function);
  if (dispatch) function = qn__dispatch_generic(dispatch);
  return qn__function_rank(function) != QN__RANK_ASKED;
}

// Makes a cell without a variant.
static qn_status_t make_cell(qn_allocator_t allocator, qn_module_t* module, const qn__ir_func_t* ir,
                             qn_device_t device, qn_function_t** out_function) {
  qn_function_t* function = qn__alloc_zero(allocator, 1, sizeof *function);
  if (!function) return qn__out_of_memory("a function");
  atomic_init(&function->reference_count, 1);
  function->allocator = allocator;
  qn_module_retain(module);
  function->module = module;
  function->ir = ir;
  function->device = device;
  *out_function = function;
  return QN_OK;
}

qn_status_t qn__function_create(qn_module_t* module, const char* name, qn_executable_t* executable,
                                qn_module_t* variant_module, qn__rank_t rank,
                                qn_function_t** out_function) {
  *out_function = NULL;
  const qn__ir_func_t* ir = find_function(module, name);
  if (!ir) return no_function(module, name);
  qn_function_t* function = NULL;
  QN_TRY(make_cell(executable->allocator, module, ir, executable->device, &function));
  qn_status_t status = qn__function_publish(function, executable, variant_module, rank);
  if (!qn_ok(status)) {
    qn_function_release(function);
    return status;
  }
  *out_function = function;
  return QN_OK;
}

static qn_status_t publish_dispatch(qn_function_t* function, qn__dispatch_t* dispatch) {
  qn__variant_t* variant = qn__alloc_zero(function->allocator, 1, sizeof *variant);
  if (!variant) return qn__out_of_memory("a function");
  variant->function = function;
  variant->ir = function->ir;
  variant->rank = QN__RANK_ASKED;
  variant->needs_more = true;
  qn_status_t status =
      qn__plan_create(function->ir, function->device, false, function->allocator, &variant->guard);
  if (!qn_ok(status)) {
    destroy_variant(function->allocator, variant);
    return status;
  }
  variant->dispatch = dispatch;
  atomic_store_explicit(&function->variant, variant, memory_order_release);
  return QN_OK;
}

qn_status_t qn__function_create_adaptive(qn__dispatch_t* dispatch, qn_function_t** out_function) {
  *out_function = NULL;
  const qn_function_t* generic = qn__dispatch_generic(dispatch);
  qn_function_t* function = NULL;
  qn_status_t status =
      make_cell(generic->allocator, generic->module, generic->ir, generic->device, &function);
  if (qn_ok(status)) status = publish_dispatch(function, dispatch);
  if (!qn_ok(status)) {
    qn_function_release(function);
    qn__dispatch_release(dispatch);
    return status;
  }
  *out_function = function;
  return QN_OK;
}

qn__dispatch_t* qn__function_dispatch(const qn_function_t* function) {
  return atomic_load_explicit(&function->variant, memory_order_acquire)->dispatch;
}

qn_status_t qn_executable_function(qn_executable_t* executable, qn_module_t* module,
                                   const char* name, qn_function_t** out_function) {
  QN_REQUIRE(out_function);
  *out_function = NULL;
  QN_REQUIRE(executable, module, name);
  if (!is_of_module(executable, module)) return another_module();
  return qn__function_create(module, name, executable, module, QN__RANK_ASKED, out_function);
}

void qn_function_retain(qn_function_t* function) {
  if (!function) return;
  atomic_fetch_add_explicit(&function->reference_count, 1, memory_order_relaxed);
}

void qn_function_release(qn_function_t* function) {
  if (!function) return;
  if (atomic_fetch_sub_explicit(&function->reference_count, 1, memory_order_acq_rel) != 1) return;
  qn__variant_t* variant = atomic_load_explicit(&function->variant, memory_order_acquire);
  while (variant) {
    qn__variant_t* next = variant->next;
    assert(!next || next->rank < variant->rank);
    destroy_variant(function->allocator, variant);
    variant = next;
  }
  qn_module_release(function->module);
  qn__free(function->allocator, function, sizeof *function);
}

const char* qn_function_signature(const qn_function_t* function) {
  if (!function) return "";
  return function->ir->signature;
}

qn_status_t qn_function_infer_shapes(const qn_function_t* function, const qn_value_t* args,
                                     size_t arg_count, int64_t* const* out_shapes,
                                     int64_t* const* out_strides) {
  QN_REQUIRE(function, out_shapes);
  return qn__infer_shapes(function->ir, function->allocator, args, arg_count, out_shapes,
                          out_strides);
}

// ---------------------------------------------------------------------------------- failures

typedef struct find_buffer {
  uint32_t id;
  const char* name;
} find_buffer_t;

static bool find_alloc(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  find_buffer_t* find = walker->self;
  if (stmt->kind == QN__STMT_ALLOC && stmt->alloc.buffer->id == find->id) {
    find->name = stmt->alloc.buffer->name;
    return false;
  }
  return true;
}

// Returns the name of a buffer by its id in the canonical bytes.
static const char* buffer_name(const qn__ir_func_t* function, uint32_t id) {
  for (size_t i = 0; i < function->param_count; i++) {
    const qn__ir_buffer_t* buffer = function->params[i].buffer;
    if (buffer && buffer->id == id) return buffer->name;
  }
  find_buffer_t find = {id, "?"};
  qn__ir_walker_t walker = {.on_stmt = find_alloc, .self = &find};
  qn__ir_block_t body = function->body;
  (void)qn__walk_block(&walker, &body);
  return find.name;
}

// Returns whether a site of this kind can be at the node. Passes may give an access of their own
// the place of another node, which is on the right line, but is not the access.
static bool is_node_of(qn_site_kind_t kind, qn__ir_node_t node) {
  switch (kind) {
    case QN_SITE_BOUNDS:
      if (node.expr) return node.expr->kind == QN__EXPR_LOAD;
      return node.stmt->kind == QN__STMT_STORE || node.stmt->kind == QN__STMT_ATOMIC ||
             node.stmt->kind == QN__STMT_ALLOC;
    case QN_SITE_DIVISION:
      return node.expr && node.expr->kind == QN__EXPR_OP && qn__op_is_division(node.expr->op);
    default:
      return true;
  }
}

// Returns the message of an assert; without one, its condition as the module's text has it.
static qn_status_t describe_assert(const char* name, const char* message, qn__ir_node_t node) {
  qn__buffer_t text;
  qn__buffer_init(&text, qn_allocator_default());
  if (!message[0] && node.stmt && node.stmt->kind == QN__STMT_ASSERT) {
    qn__text_print_expr(node.stmt->assert_.condition, &text);
    if (!text.has_failed) message = (const char*)text.data;
  }
  qn_status_t status =
      qn_status_make(QN_STATUS_ASSERTION, "function '%s': assert failed: %s", name, message);
  qn__buffer_deinit(&text);
  return status;
}

static qn_status_t describe(const qn__ir_func_t* ir, const qn_artifact_site_t* site,
                            const qn_kernel_failure_t* failure, qn__ir_node_t node) {
  const char* buffer = buffer_name(ir, site->buffer_id);
  switch (site->kind) {
    case QN_SITE_ASSERT:
      return describe_assert(ir->name, site->message, node);
    case QN_SITE_BOUNDS:
      return qn_status_make(QN_STATUS_OUT_OF_BOUNDS,
                            "function '%s': buffer '%s' dim %u: index %" PRId64
                            " outside of extent %" PRId64,
                            ir->name, buffer, site->dim, failure->index, failure->extent);
    case QN_SITE_DIVISION:
      return qn_status_make(QN_STATUS_DIVISION_BY_ZERO, "function '%s': integer division by zero",
                            ir->name);
    case QN_SITE_EXTENT:
      return qn_status_make(QN_STATUS_VALUE_ERROR,
                            "function '%s': buffer '%s' dim %u: extent %" PRId64
                            " is negative or too large",
                            ir->name, buffer, site->dim, failure->extent);
    case QN_SITE_MEMORY:
      if (site->buffer_id == UINT32_MAX) {  // of the compiler
        return qn_status_make(QN_STATUS_OUT_OF_MEMORY,
                              "function '%s': no memory for %" PRId64 " bytes of workspace",
                              ir->name, failure->extent);
      }
      return qn_status_make(QN_STATUS_OUT_OF_MEMORY,
                            "function '%s': no memory for buffer '%s' of %" PRId64 " bytes",
                            ir->name, buffer, failure->extent);
  }
  return qn_status_make(QN_STATUS_INTERNAL, "function '%s' failed at a site of unknown kind",
                        ir->name);
}

qn_status_t qn__variant_describe(void* owner, const qn_kernel_failure_t* failure) {
  const qn__variant_t* variant = owner;
  const qn__ir_func_t* ir = variant->ir;  // has the cell's name and buffers of its own
  const qn_artifact_function_t* function = &variant->executable->functions[variant->index];
  if (failure->site >= function->site_count) {
    return qn_status_make(QN_STATUS_INTERNAL, "function '%s' failed at unknown site %u", ir->name,
                          failure->site);
  }
  const qn_artifact_site_t* site = &function->sites[failure->site];
  qn__ir_node_t node = qn__place_find(variant->module, ir, site->place);
  bool is_quoted = (node.expr || node.stmt) && is_node_of(site->kind, node);
  qn_status_t status = describe(ir, site, failure, node);
  return qn__place_append(status, variant->module, node, is_quoted);
}

static void retain_owner(void* owner) {
  qn_function_retain(((qn__variant_t*)owner)->function);
}
static void release_owner(void* owner) {
  qn_function_release(((qn__variant_t*)owner)->function);
}

// ---------------------------------------------------------------------------------- launches

qn_status_t qn__variant_launch(qn__variant_t* variant, qn_stream_t* stream, const uint64_t* words,
                               const uint64_t* ends) {
  const qn_executable_t* executable = variant->executable;
  assert(variant->plan->arg_count + variant->plan->symbol_count <= QN__MAX_WORDS);
  qn_launch_t launch = {
      .words = words,
      .word_count = variant->plan->arg_count + variant->plan->symbol_count,
      .ends = ends,
      .owner = variant,
      .retain = retain_owner,
      .release = release_owner,
      .describe = qn__variant_describe,
  };
  return executable->device_table->launch(executable->device.id, executable->inner, variant->index,
                                          qn__stream_inner(stream), &launch);
}
