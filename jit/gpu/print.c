// SPDX-License-Identifier: Apache-2.0
// jit/gpu/print.c: prints a text: beginning, prelude, tables, kernels.
//
// The kernels are printed first, into a buffer of their own, because the beginning of the text
// depends on the helpers and tables that they use. Each line carries the number of its line in the
// mapped module, for error messages.
#include "jit/gpu/print.h"

#include <assert.h>

#include "ir/ptrmap.h"
#include "ir/text.h"
#include "jit/gpu/print_inner.h"

// ---- runs of lines

static void lines_init(qn__gpu_lines_t* lines, qn_allocator_t allocator) {
  qn__buffer_init(&lines->text, allocator);
  qn__buffer_init(&lines->lines, allocator);
}

static void lines_deinit(qn__gpu_lines_t* lines) {
  qn__buffer_deinit(&lines->text);
  qn__buffer_deinit(&lines->lines);
}

static void lines_move(qn__gpu_lines_t* to, qn__gpu_lines_t* from) {
  qn__buffer_bytes(&to->text, from->text.data, from->text.size);
  qn__buffer_bytes(&to->lines, from->lines.data, from->lines.size);
  to->text.has_failed |= from->text.has_failed;
  to->lines.has_failed |= from->lines.has_failed;
  qn__buffer_clear(&from->text);
  qn__buffer_clear(&from->lines);
}

#ifndef NDEBUG
// Checks that each line of the text has its place in `lines`.
static bool lines_check(const qn__gpu_lines_t* lines) {
  if (lines->text.has_failed || lines->lines.has_failed) return true;
  size_t count = 0;
  for (size_t i = 0; i < lines->text.size; ++i) count += lines->text.data[i] == '\n';
  return count * sizeof(uint32_t) == lines->lines.size;
}
#endif

void qn__kprint_extra(qn__gpu_printer_t* p) {
  lines_move(p->at, &p->extra);
}

// ---- one kernel

static bool make_names(qn__gpu_printer_t* p) {
  qn__ir_func_t* function = p->kernel->function;
  qn__function_number(function);
  p->var_count = function->var_count;
  p->buffer_count = function->buffer_count;
  p->var_names = qn__arena_alloc_array(p->arena, p->var_count + 1U, sizeof *p->var_names);
  p->is_nonnegative = qn__arena_alloc_array(p->arena, p->var_count + 1U, sizeof(bool));
  p->buffer_names = qn__arena_alloc_array(p->arena, p->buffer_count + 1U, sizeof *p->buffer_names);
  p->views = qn__arena_alloc_array(p->arena, p->buffer_count + 1U, sizeof *p->views);
  if (p->var_names && p->is_nonnegative && p->buffer_names && p->views) return true;
  qn__kprint_no_memory(p);
  return false;
}

static void print_kernel(qn__gpu_printer_t* p, uint32_t index) {
  p->kernel = &p->program->kernels[index];
  p->temp_count = 0;
  p->name_count = 0;
  p->shared_count = 0;
  p->extra_shared_bytes = 0;
  p->shared_align = 16;
  p->loop_depth = 0;
  p->needs_barrier = p->is_in_threads = p->has_barrier = p->is_ordered = false;
  p->has_block_exchange = p->has_fail = false;
  if (!make_names(p)) return;
  // Name the arguments first, so that their numbers follow their order.
  const qn__gpu_kernel_t* plan = p->kernel->plan;
  for (uint32_t i = 0; i < plan->arg_count; ++i) {
    const qn_gpu_operand_t* node = &p->kernel->nodes[i];
    if (node->buffer) {
      (void)qn__kprint_buffer(p, node->buffer);
    } else {
      (void)qn__kprint_var(p, node->var);
    }
  }
  p->ir_line = p->places ? (uint32_t)(uintptr_t)qn__ptrmap_get(p->places, p->kernel->root) : 0;
  uint32_t line = p->ir_line;
  p->at = &p->body;
  p->indent = 1;
  qn__kprint_begin_alive(p);
  qn__kprint_launch(p);
  assert(p->indent == 1);
  p->ir_line = line;
  p->at = &p->head;
  p->indent = 0;
  p->dialect->kernel_begin(p);
  p->at = &p->body;
  p->indent = 1;
  qn__kprint_close(p);
  qn__buffer_clear(&p->extra.text);
  qn__buffer_clear(&p->extra.lines);
  lines_move(&p->kernels, &p->head);
  lines_move(&p->kernels, &p->body);
}

// ---- the text

static void put_prelude(const qn__gpu_printer_t* p, qn__gpu_lines_t* to) {
  qn__buffer_t text;
  qn__buffer_init(&text, p->arena->allocator);
  qn__gpu_prelude_write(&p->use, p->dialect->is_glsl, p->options->has_native_fma,
                        p->options->has_int64, p->options->has_float64, &text);
  for (size_t i = 0; i < text.size; ++i) {
    if (text.data[i] == '\n') qn__buffer_u32(&to->lines, 0);
  }
  qn__buffer_bytes(&to->text, text.data, text.size);
  to->text.has_failed |= text.has_failed;
  qn__buffer_deinit(&text);
}

static void put_text(qn__gpu_printer_t* p, qn__buffer_t* out, qn__buffer_t* out_lines) {
  p->ir_line = 0;
  p->at = &p->begin;
  p->indent = 0;
  p->dialect->text_begin(p);
  put_prelude(p, &p->begin);
  lines_move(&p->begin, &p->outer);
  lines_move(&p->begin, &p->kernels);
  assert(lines_check(&p->begin));
  qn__buffer_bytes(out, p->begin.text.data, p->begin.text.size);
  if (out_lines) qn__buffer_bytes(out_lines, p->begin.lines.data, p->begin.lines.size);
  if (p->begin.text.has_failed || p->begin.lines.has_failed || out->has_failed ||
      (out_lines && out_lines->has_failed)) {
    qn__kprint_no_memory(p);
  }
}

// ---- places

static bool remember_place(void* self, const qn__ir_stmt_t* stmt, uint32_t line) {
  return qn__ptrmap_put(self, stmt, (void*)(uintptr_t)line);
}

static qn_status_t find_places(qn__gpu_printer_t* p, qn__ptrmap_t* places) {
  qn__buffer_t text;
  qn__buffer_init(&text, p->arena->allocator);
  bool is_whole = qn__text_print_places(p->program->body, &text, remember_place, places);
  qn__buffer_deinit(&text);
  return is_whole ? QN_OK : qn__out_of_memory("the places of statements");
}

qn_status_t qn__print_kernels(const qn__gpu_print_options_t* options, uint32_t first,
                              uint32_t count, qn__buffer_t* out, qn__buffer_t* out_lines) {
  qn__gpu_program_t* program = options->program;
  qn_allocator_t allocator = program->arena->allocator;
  qn__gpu_printer_t printer = {.options = options,
                               .dialect = options->dialect,
                               .program = program,
                               .arena = program->arena,
                               .status = QN_OK};
  qn__gpu_lines_t* runs[] = {&printer.begin, &printer.outer, &printer.head,
                             &printer.body,  &printer.extra, &printer.kernels};
  for (size_t i = 0; i < QN_COUNT_OF(runs); ++i) lines_init(runs[i], allocator);
  qn__ptrmap_t places;
  qn__ptrmap_init(&places, allocator);
  if (out_lines) {
    printer.status = find_places(&printer, &places);
    printer.places = &places;
  }
  for (uint32_t i = 0; i < count && qn__kprint_ok(&printer); ++i) {
    print_kernel(&printer, first + i);
  }
  if (qn__kprint_ok(&printer)) put_text(&printer, out, out_lines);
  qn__ptrmap_deinit(&places);
  for (size_t i = 0; i < QN_COUNT_OF(runs); ++i) lines_deinit(runs[i]);
  return printer.status;
}
