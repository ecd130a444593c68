// SPDX-License-Identifier: Apache-2.0
// jit/llvm/emit_module.c: emits a module of kernels, function by function.
//
// Before a function is emitted, all its variables and buffers get their slots, and constructs that
// a CPU does not have are refused. After that, emitting fails only if memory runs out.
#include <stdio.h>

#include <llvm-c/Target.h>

#include "jit/llvm/emit_inner.h"

// ------------------------------------------------------------------------------------ declarations

typedef struct declare {
  qn__llvm_emit_t* e;
  const char* refused;  // the first construct that a CPU does not have
  // Buffers that own memory, in order of declaration.
  qn__llvm_buffer_slot_t* roots;
  qn__llvm_buffer_slot_t** next_root;
  uint32_t root_count;
  bool has_failed;
} declare_t;

static void declare_var(declare_t* self, qn__ir_var_t* var, uint32_t word) {
  if (!var) return;
  qn__llvm_var_slot_t* slot = QN__ARENA_NEW(self->e->arena, qn__llvm_var_slot_t);
  if (!slot) {
    self->has_failed = true;
    return;
  }
  slot->word = word;
  var->user = slot;
}

static void declare_buffer(declare_t* self, qn__ir_buffer_t* buffer, uint32_t word) {
  qn__arena_t* arena = self->e->arena;
  qn__llvm_buffer_slot_t* slot = QN__ARENA_NEW(arena, qn__llvm_buffer_slot_t);
  qn__llvm_dim_t* dims = qn__arena_alloc_array(arena, buffer->rank + 1U, sizeof *dims);
  if (!slot || !dims) {
    self->has_failed = true;
    return;
  }
  slot->word = word;
  slot->dims = dims;
  buffer->user = slot;
  if (buffer->scope == QN__SCOPE_VIEW || buffer->scope == QN__SCOPE_CONST) return;
  *self->next_root = slot;
  self->next_root = &slot->next_root;
  self->root_count++;
}

static bool declare_stmt(qn__ir_walker_t* walker, qn__ir_stmt_t* stmt) {
  declare_t* self = walker->self;
  switch (stmt->kind) {
    case QN__STMT_LET:
      declare_var(self, stmt->let.var, UINT32_MAX);
      break;
    case QN__STMT_LOOP:
      declare_var(self, stmt->loop.var, UINT32_MAX);
      break;
    case QN__STMT_ATOMIC:
      declare_var(self, stmt->atomic.result, UINT32_MAX);
      break;
    case QN__STMT_ALLOC:
      declare_buffer(self, stmt->alloc.buffer, UINT32_MAX);
      break;
    case QN__STMT_BARRIER:
      self->refused = "barrier";
      break;
    case QN__STMT_TENSOR: {
      bool is_tiles = stmt->tensor->kind == QN__TENSOR_TILES;
      bool is_product = stmt->tensor->kind == QN__TENSOR_PRODUCT;
      if (!(is_tiles && self->e->options->has_tiles) &&
          !(is_product && self->e->options->prepared)) {
        self->refused = "tensor statement";
      }
      break;
    }
    case QN__STMT_REDUCE:
      self->refused = "reduction of several values";
      break;
    case QN__STMT_LEAVE:
      self->refused = qn__leave_text(stmt->leave);
      break;
    default:
      break;
  }
  return !self->has_failed && !self->refused;
}

static bool declare_expr(qn__ir_walker_t* walker, qn__ir_expr_t* expr) {
  declare_t* self = walker->self;
  if (expr->kind == QN__EXPR_REDUCE) declare_var(self, expr->reduce.reduce_var, UINT32_MAX);
  if (qn__expr_is_exchange(expr)) self->refused = qn__op_info(expr->op)->text;
  return !self->has_failed && !self->refused;
}

// Gives each buffer that owns memory its own alias scope: the call guarantees that a written buffer
// overlaps no other one.
static void make_scopes(qn__llvm_emit_t* e, qn__llvm_buffer_slot_t* roots, uint32_t count) {
  // Longer lists cost more compile time than they save.
  enum { MAX_SCOPES = 64 };
  if (count == 0 || count > MAX_SCOPES) return;
  LLVMMetadataRef all[MAX_SCOPES], others[MAX_SCOPES];
  LLVMContextRef c = e->context;
  const char* function = e->function->name;
  LLVMMetadataRef domain_name = LLVMMDStringInContext2(c, function, strlen(function));
  LLVMMetadataRef domain = LLVMMDNodeInContext2(c, &domain_name, 1);
  uint32_t own = 0;
  for (qn__llvm_buffer_slot_t* slot = roots; slot; slot = slot->next_root, ++own) {
    char name[256];
    (void)snprintf(name, sizeof name, "%s.%u", function, own);
    LLVMMetadataRef parts[] = {LLVMMDStringInContext2(c, name, strlen(name)), domain};
    all[own] = LLVMMDNodeInContext2(c, parts, 2);
    slot->scope_list = LLVMMetadataAsValue(c, LLVMMDNodeInContext2(c, &all[own], 1));
  }
  assert(own == count);
  own = 0;
  for (qn__llvm_buffer_slot_t* slot = roots; slot && count > 1; slot = slot->next_root, ++own) {
    memcpy(others, all, own * sizeof *all);
    memcpy(others + own, all + own + 1, (count - own - 1) * sizeof *all);
    slot->others_list = LLVMMetadataAsValue(c, LLVMMDNodeInContext2(c, others, count - 1));
  }
}

static qn_status_t declare_all(qn__llvm_emit_t* e, qn__ir_func_t* function) {
  declare_t self = {.e = e};
  self.next_root = &self.roots;
  uint32_t word = 0;
  for (size_t i = 0; i < function->param_count; ++i, ++word) {
    if (function->params[i].buffer) {
      declare_buffer(&self, function->params[i].buffer, word);
    } else {
      declare_var(&self, function->params[i].scalar, word);
    }
  }
  for (size_t i = 0; i < function->symbol_count; ++i, ++word) {
    declare_var(&self, function->symbols[i], word);
  }
  qn__ir_walker_t walker = {declare_stmt, declare_expr, &self};
  if (!self.has_failed) (void)qn__walk_block(&walker, &function->body);
  if (self.refused) {
    return qn_status_make(QN_STATUS_UNSUPPORTED,
                          "function '%s': '%s' is left; the passes of a cpu target lower exchanges "
                          "among threads",
                          function->name, self.refused);
  }
  if (self.has_failed) return qn__out_of_memory("the slots of a function");
  make_scopes(e, self.roots, self.root_count);
  return QN_OK;
}

// ------------------------------------------------------------------------------------ functions

// Consecutive outermost loops are consecutive launches.
static uint32_t count_launches(const qn__ir_block_t* block) {
  uint32_t count = 0;
  for (const qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    if (stmt->kind == QN__STMT_LOOP || stmt->kind == QN__STMT_WHILE) count++;
    if (stmt->kind == QN__STMT_IF) {
      count += count_launches(&stmt->if_.then_block) + count_launches(&stmt->if_.else_block);
    }
  }
  return count;
}

static qn_status_t emit_function(qn__llvm_emit_t* e, qn__ir_func_t* function,
                                 qn__llvm_emit_function_t* out) {
  e->function = function;
  e->fn = NULL;
  e->body_count = 0;
  e->part_count = 0;
  e->table_count = 0;
  e->sites = NULL;
  e->site_count = 0;
  e->site_capacity = 0;
  QN_TRY(declare_all(e, function));
  out->name = qn__arena_cstr(e->arena, qn__str(function->name));
  out->launch_count = count_launches(&function->body);
  qn__llvm_function_t* fn =
      out->name ? qn__emit_fn_begin(e, function->name, QN__LLVM_KERNEL) : NULL;
  if (!fn) return qn__out_of_memory("a kernel");
  qn__emit_block_of(e, &function->body);
  qn__emit_fn_end(e);
  out->stack_bytes = fn->stack_bytes + fn->callee_bytes;
  out->site_count = e->site_count;
  out->sites = e->sites;
  return e->has_failed || e->arena->is_exhausted ? qn__out_of_memory("a kernel") : QN_OK;
}

// ------------------------------------------------------------------------------------ the module

static unsigned metadata_kind(qn__llvm_emit_t* e, const char* name) {
  return LLVMGetMDKindIDInContext(e->context, name, (unsigned)strlen(name));
}

static void init(qn__llvm_emit_t* e) {
  LLVMContextRef c = e->context;
  e->i1 = LLVMInt1TypeInContext(c);
  e->i8 = LLVMInt8TypeInContext(c);
  e->i16 = LLVMInt16TypeInContext(c);
  e->i32 = LLVMInt32TypeInContext(c);
  e->i64 = LLVMInt64TypeInContext(c);
  e->f32 = LLVMFloatTypeInContext(c);
  e->f64 = LLVMDoubleTypeInContext(c);
  e->pointer = LLVMPointerTypeInContext(c, 0);
  LLVMTypeRef p = e->pointer;
  LLVMTypeRef nothing = LLVMVoidTypeInContext(c);
  e->kernel_type = LLVMFunctionType(e->i32, (LLVMTypeRef[]){p, p}, 2, false);
  e->body_type = LLVMFunctionType(e->i32, (LLVMTypeRef[]){p, p, e->i64, e->i64}, 4, false);
  e->parallel_type = LLVMFunctionType(e->i32, (LLVMTypeRef[]){p, p, p, e->i64, e->i64}, 5, false);
  e->allocate_type = LLVMFunctionType(p, (LLVMTypeRef[]){p, e->i64}, 2, false);
  e->release_type = LLVMFunctionType(nothing, (LLVMTypeRef[]){p, p}, 2, false);
  e->fail_type = LLVMFunctionType(nothing, (LLVMTypeRef[]){p, e->i32, e->i64, e->i64}, 4, false);
  e->alias_scope_kind = metadata_kind(e, "alias.scope");
  e->noalias_kind = metadata_kind(e, "noalias");
  e->invariant_kind = metadata_kind(e, "invariant.load");
  e->range_kind = metadata_kind(e, "range");
  char* triple = LLVMGetTargetMachineTriple(e->options->machine);
  LLVMSetTarget(e->module, triple);
  LLVMDisposeMessage(triple);
  LLVMTargetDataRef layout = LLVMCreateTargetDataLayout(e->options->machine);
  LLVMSetModuleDataLayout(e->module, layout);
  LLVMDisposeTargetData(layout);
}

qn_status_t qn__emit_module(qn__ir_func_t* first, size_t function_count,
                            const qn__llvm_emit_options_t* options, qn__arena_t* arena,
                            qn__llvm_emit_result_t* out) {
  *out = (qn__llvm_emit_result_t){.module = NULL};
  qn__llvm_emit_t* e = QN__ARENA_NEW(arena, qn__llvm_emit_t);
  qn__llvm_emit_function_t* functions =
      qn__arena_alloc_array(arena, function_count + 1, sizeof *functions);
  if (!e || !functions) return qn__out_of_memory("a module of kernels");
  e->options = options;
  e->arena = arena;
  e->context = options->context;
  e->module = LLVMModuleCreateWithNameInContext("quern", e->context);
  init(e);
  qn_status_t status = QN_OK;
  qn__ir_func_t* function = first;
  for (size_t i = 0; i < function_count && qn_ok(status); ++i, function = function->next) {
    status = emit_function(e, function, &functions[i]);
  }
  if (!qn_ok(status)) {
    LLVMDisposeModule(e->module);
    return status;
  }
  *out = (qn__llvm_emit_result_t){e->module, function_count, functions};
  return QN_OK;
}
