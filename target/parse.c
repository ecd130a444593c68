// SPDX-License-Identifier: Apache-2.0
// target/parse.c: parses the written forms of a target: tag, kind, command line and JSON.
//
// The command line:  WORD {OPTION}
//   WORD    a kind or a tag
//   OPTION  -name=value, or -name for a boolean that is true
//
// Blanks separate words; '...' and "..." keep blanks together; commas separate list items. JSON is
// an object with "kind" or "tag" and the options by name. Both forms also take `host` (a target)
// and `from_device`. A value that is given twice is an error; values beside a tag replace those of
// the tag. Read next: value.c, resolve.c.
#include <jansson.h>
#include <stdio.h>

#include "target/target.h"

enum { TEXT_LIMIT_BYTES = 64 * 1024 };

typedef struct parser {
  qn_target_t* target;
  qn__target_layer_t layer;  // TAG while the JSON of a tag is read
  bool is_host;              // a host has no host of its own
} parser_t;

static qn_status_t parse_into(parser_t* parser, qn_str_t text);
static qn_status_t make(qn_str_t text, json_t* object, qn_allocator_t allocator, bool is_host,
                        qn_target_t** out_target);

// ------------------------------------------------------------------------------------ pieces

static qn_status_t unknown_kind(qn_str_t name) {
  qn__target_nearest_t nearest = qn__nearest_make(name);
  for (size_t i = 0; i < qn_target_kind_count(); ++i) {
    qn__nearest_offer(&nearest, qn_target_kind_at(i)->name);
  }
  const char *tag, *json;
  for (size_t i = 0; qn_target_tag_at(i, &tag, &json); ++i) qn__nearest_offer(&nearest, tag);
  if (nearest.best) {
    return qn__nearest_status(&nearest, QN_STATUS_NOT_FOUND,
                              "no target kind or tag is named '%.*s'",
                              QN_STR_ARG(qn__excerpt(name)));
  }
  char kinds[256] = "";
  for (size_t i = 0, used = 0; i < qn_target_kind_count(); ++i) {
    const char* kind = qn_target_kind_at(i)->name;
    size_t size = strlen(kind) + 2;
    if (used + size >= sizeof kinds) break;
    (void)snprintf(kinds + used, sizeof kinds - used, "%s%s", i ? ", " : "", kind);
    used += i ? size : size - 2;
  }
  return qn_status_make(QN_STATUS_NOT_FOUND,
                        "no target kind or tag is named '%.*s'; kinds are %s; tags look like "
                        "nvidia/h200",
                        QN_STR_ARG(qn__excerpt(name)), kinds);
}

// Sets the kind, or reads the JSON of a tag into the target.
static qn_status_t set_name(parser_t* parser, qn_str_t name) {
  qn_target_t* target = parser->target;
  const qn__target_kind_t* kind = qn__target_kind_find(name);
  if (kind) {
    target->kind = kind;
    target->values =
        qn__arena_alloc_array(&target->arena, kind->info->option_count, sizeof *target->values);
    return target->values ? QN_OK : qn__out_of_memory("a target");
  }
  const char* json = qn__target_tag_find(name);
  if (!json || parser->layer == QN__LAYER_TAG) return unknown_kind(name);
  parser->layer = QN__LAYER_TAG;
  qn_status_t status = parse_into(parser, qn__str(json));
  parser->layer = QN__LAYER_USER;
  return qn_status_annotate(status, "tag '%.*s'", QN_STR_ARG(name));
}

static qn_status_t unknown_option(const qn__target_kind_t* kind, qn_str_t name) {
  qn__target_nearest_t nearest = qn__nearest_make(name);
  for (size_t i = 0; i < kind->info->option_count; ++i) {
    qn__nearest_offer(&nearest, kind->options[i].name);
  }
  qn__nearest_offer(&nearest, "from_device");
  qn__nearest_offer(&nearest, "host");
  return qn__nearest_status(&nearest, QN_STATUS_INVALID_ARGUMENT,
                            "target kind '%s' has no option '%.*s'", kind->info->name,
                            QN_STR_ARG(qn__excerpt(name)));
}

// Claims a value, which may be given once per layer.
static qn_status_t claim(parser_t* parser, qn__target_value_t* value, qn_str_t name) {
  if (value->layer == parser->layer) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "option '%.*s' is given twice",
                          QN_STR_ARG(qn__excerpt(name)));
  }
  *value = (qn__target_value_t){.layer = parser->layer};
  return QN_OK;
}

static qn_status_t set_from_device(parser_t* parser, int64_t number) {
  QN_TRY(claim(parser, &parser->target->from_device, QN_STR("from_device")));
  if (number < 0 || number > INT32_MAX) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "option 'from_device' takes a device number from 0, not %" PRId64,
                          number);
  }
  parser->target->from_device.number = number;
  return QN_OK;
}

// Sets the host from `text` or from `object`.
static qn_status_t set_host(parser_t* parser, qn_str_t text, json_t* object) {
  qn_target_t* target = parser->target;
  if (parser->is_host) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "a host has no host of its own");
  }
  if (target->host) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "option 'host' is given twice");
  }
  QN_TRY(qn_status_annotate(make(text, object, target->allocator, true, &target->host), "host"));
  qn__target_kind_id_t id = target->host->kind->id;
  if (id == QN__KIND_CPU || id == QN__KIND_INTERP) return QN_OK;
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "host: must be of kind cpu or interp, not %s",
                        qn_target_kind(target->host));
}

// ------------------------------------------------------------------------------------ JSON

static const char* json_type_text(const json_t* value) {
  static const char* const texts[] = {
      [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
      [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real number", [JSON_TRUE] = "a boolean",
      [JSON_FALSE] = "a boolean",    [JSON_NULL] = "null"};
  return texts[json_typeof(value)];
}

static qn_str_t json_str(const json_t* value) {
  return (qn_str_t){json_string_value(value), json_string_length(value)};
}

static qn_status_t wrong_type(const char* name, const char* expected, const json_t* value) {
  return qn_status_make(QN_STATUS_INVALID_ARGUMENT, "option '%s' takes %s, not %s", name, expected,
                        json_type_text(value));
}

static qn_status_t value_from_json(parser_t* parser, size_t index, const json_t* json,
                                   qn__target_value_t* out) {
  const qn__target_kind_t* kind = parser->target->kind;
  const qn__target_option_t* option = &kind->options[index];
  const char* expected = qn__target_option_type_text(option->type);
  qn__arena_t* arena = &parser->target->arena;
  switch (option->type) {
    case QN_OPTION_BOOL:
      if (!json_is_boolean(json)) return wrong_type(option->name, expected, json);
      out->number = json_is_true(json);
      return QN_OK;
    case QN_OPTION_INT:
      if (!json_is_integer(json)) return wrong_type(option->name, expected, json);
      out->number = (int64_t)json_integer_value(json);
      return qn__target_value_check_range(kind, index, out->number);
    case QN_OPTION_STRING:
      if (!json_is_string(json)) return wrong_type(option->name, expected, json);
      return qn__target_value_parse(arena, kind, index, json_str(json), out);
    case QN_OPTION_STRING_LIST:
      break;
  }
  if (!json_is_array(json)) return wrong_type(option->name, expected, json);
  size_t count = json_array_size(json);
  out->items = qn__arena_alloc_array(arena, count, sizeof *out->items);
  if (count && !out->items) return qn__out_of_memory("a list of a target");
  for (size_t i = 0; i < count; ++i) {
    const json_t* item = json_array_get(json, i);
    if (!json_is_string(item)) return wrong_type(option->name, expected, item);
    out->items[i] = qn__arena_cstr(arena, json_str(item));
    if (!out->items[i]) return qn__out_of_memory("a list of a target");
  }
  out->item_count = count;
  return QN_OK;
}

static qn_status_t read_member(parser_t* parser, const char* name, json_t* json) {
  if (strcmp(name, "kind") == 0 || strcmp(name, "tag") == 0) return QN_OK;  // already read
  if (strcmp(name, "from_device") == 0) {
    if (!json_is_integer(json)) return wrong_type(name, "an integer", json);
    return set_from_device(parser, (int64_t)json_integer_value(json));
  }
  if (strcmp(name, "host") == 0) {
    if (json_is_object(json)) return set_host(parser, (qn_str_t){NULL, 0}, json);
    if (json_is_string(json)) return set_host(parser, json_str(json), NULL);
    return wrong_type(name, "an object or a string", json);
  }
  int option = qn__target_option_find(parser->target->kind, qn__str(name));
  if (option < 0) return unknown_option(parser->target->kind, qn__str(name));
  qn__target_value_t* value = &parser->target->values[option];
  QN_TRY(claim(parser, value, qn__str(name)));
  return value_from_json(parser, (size_t)option, json, value);
}

static qn_status_t read_object(parser_t* parser, json_t* object) {
  json_t* kind = json_object_get(object, "kind");
  json_t* tag = json_object_get(object, "tag");
  if (!kind == !tag) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a target in JSON has either \"kind\" or \"tag\"%s",
                          kind ? ", not both" : "");
  }
  json_t* name = kind ? kind : tag;
  if (!json_is_string(name)) return wrong_type(kind ? "kind" : "tag", "a string", name);
  if (kind && !qn__target_kind_find(json_str(kind))) return unknown_kind(json_str(kind));
  if (tag && !qn__target_tag_find(json_str(tag))) return unknown_kind(json_str(tag));
  QN_TRY(set_name(parser, json_str(name)));
  // In the order of the names, so that the first of several errors is always the same one.
  const char* previous = "";
  for (size_t i = 0; i < json_object_size(object); ++i) {
    const char* next = NULL;
    const char* key;
    json_t* value;
    json_t* next_value = NULL;
    json_object_foreach(object, key, value) {
      if (strcmp(key, previous) > 0 && (!next || strcmp(key, next) < 0)) {
        next = key;
        next_value = value;
      }
    }
    if (!next) break;  // the empty key is no option
    QN_TRY(read_member(parser, next, next_value));
    previous = next;
  }
  if (json_object_get(object, "")) return unknown_option(parser->target->kind, QN_STR(""));
  return QN_OK;
}

static qn_status_t parse_json(parser_t* parser, qn_str_t text) {
  json_error_t error;
  json_t* root = json_loadb(text.data, text.size, JSON_REJECT_DUPLICATES, &error);
  if (!root) {
    if (json_error_code(&error) == json_error_out_of_memory) {
      return qn__out_of_memory("the JSON of a target");
    }
    return qn_status_make(QN_STATUS_SYNTAX, "target JSON, line %d, column %d: %s", error.line,
                          error.column, error.text);
  }
  qn_status_t status = read_object(parser, root);
  json_decref(root);
  return status;
}

// ------------------------------------------------------------------------------------ command line

typedef struct scanner {
  const char* at;
  const char* end;
  const char* line_begin;
  int line;
  char* word;  // has room for the whole text
  size_t word_size;
  int word_line, word_column;
} scanner_t;

static bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void advance(scanner_t* scanner) {
  if (*scanner->at++ == '\n') {
    ++scanner->line;
    scanner->line_begin = scanner->at;
  }
}

static qn_status_t syntax(int line, int column, const char* what, qn_str_t word) {
  return qn_status_make(QN_STATUS_SYNTAX, "target, line %d, column %d: %s, not '%.*s'", line,
                        column, what, QN_STR_ARG(qn__excerpt(word)));
}

// Reads the next word into scanner->word; `*out_has_word` is false at the end.
static qn_status_t next_word(scanner_t* scanner, bool* out_has_word) {
  while (scanner->at < scanner->end && is_blank(*scanner->at)) advance(scanner);
  *out_has_word = scanner->at < scanner->end;
  scanner->word_size = 0;
  scanner->word_line = scanner->line;
  scanner->word_column = (int)(scanner->at - scanner->line_begin) + 1;
  char quote = '\0';
  int quote_line = 0, quote_column = 0;
  while (scanner->at < scanner->end && (quote || !is_blank(*scanner->at))) {
    char c = *scanner->at;
    if (quote ? c == quote : c == '\'' || c == '"') {
      quote = quote ? '\0' : c;
      quote_line = scanner->line;
      quote_column = (int)(scanner->at - scanner->line_begin) + 1;
    } else {
      scanner->word[scanner->word_size++] = c;
    }
    advance(scanner);
  }
  if (!quote) return QN_OK;
  return qn_status_make(QN_STATUS_SYNTAX, "target, line %d, column %d: the quote is not closed",
                        quote_line, quote_column);
}

static qn_status_t read_option(parser_t* parser, const scanner_t* scanner) {
  const qn__target_kind_t* kind = parser->target->kind;
  qn_str_t word = {scanner->word, scanner->word_size};
  size_t dashes = 0;
  while (dashes < word.size && dashes < 2 && word.data[dashes] == '-') ++dashes;
  qn_str_t name = {word.data + dashes, word.size - dashes};
  const char* equals = name.size ? memchr(name.data, '=', name.size) : NULL;
  qn_str_t value = {NULL, 0};
  if (equals) {
    value = (qn_str_t){equals + 1, (size_t)(name.data + name.size - equals) - 1};
    name.size = (size_t)(equals - name.data);
  }
  if (dashes == 0 || name.size == 0) {
    return syntax(scanner->word_line, scanner->word_column, "expected an option -name=value", word);
  }
  int option = qn__target_option_find(kind, name);
  bool is_host = qn__str_equal(name, QN_STR("host"));
  bool is_from_device = qn__str_equal(name, QN_STR("from_device"));
  if (option < 0 && !is_host && !is_from_device) return unknown_option(kind, name);
  if (!equals && (option < 0 || kind->options[option].type != QN_OPTION_BOOL)) {
    return syntax(scanner->word_line, scanner->word_column, "the option needs a value: -name=value",
                  word);
  }
  if (is_host) return set_host(parser, value, NULL);
  if (is_from_device) {
    int64_t number;
    if (qn__int_parse(value, &number)) return set_from_device(parser, number);
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "option 'from_device' takes an integer, not '%.*s'",
                          QN_STR_ARG(qn__excerpt(value)));
  }
  qn__target_value_t* place = &parser->target->values[option];
  QN_TRY(claim(parser, place, name));
  if (!equals) value = QN_STR("true");
  return qn__target_value_parse(&parser->target->arena, kind, (size_t)option, value, place);
}

static qn_status_t parse_words(parser_t* parser, qn_str_t text) {
  scanner_t scanner = {.at = text.data, .end = text.data + text.size, .line_begin = text.data};
  scanner.line = 1;
  scanner.word = qn__arena_alloc(&parser->target->arena, text.size);
  if (!scanner.word) return qn__out_of_memory("the words of a target");
  bool has_word;
  QN_TRY(next_word(&scanner, &has_word));
  qn_str_t name = {scanner.word, scanner.word_size};
  if (name.size > 0 && name.data[0] == '-') {
    return syntax(scanner.word_line, scanner.word_column,
                  "expected a kind or a tag before the options", name);
  }
  QN_TRY(set_name(parser, name));
  for (;;) {
    QN_TRY(next_word(&scanner, &has_word));
    if (!has_word) return QN_OK;
    QN_TRY(read_option(parser, &scanner));
  }
}

static qn_status_t parse_into(parser_t* parser, qn_str_t text) {
  if (text.size > TEXT_LIMIT_BYTES) {
    return qn_status_make(QN_STATUS_INVALID_ARGUMENT,
                          "a target of %zu bytes is beyond the limit of %d", text.size,
                          TEXT_LIMIT_BYTES);
  }
  size_t i = 0;
  while (i < text.size && is_blank(text.data[i])) ++i;
  if (i == text.size) {
    return qn_status_make(QN_STATUS_SYNTAX,
                          "target, line 1, column 1: the text is empty; write a kind such as cpu");
  }
  return text.data[i] == '{' ? parse_json(parser, text) : parse_words(parser, text);
}

static qn_status_t make(qn_str_t text, json_t* object, qn_allocator_t allocator, bool is_host,
                        qn_target_t** out_target) {
  *out_target = NULL;
  qn_target_t* target = qn__alloc_zero(allocator, 1, sizeof *target);
  if (!target) return qn__out_of_memory("a target");
  atomic_init(&target->reference_count, 1);
  target->allocator = allocator;
  qn__arena_init(&target->arena, allocator);
  parser_t parser = {target, QN__LAYER_USER, is_host};
  qn_status_t status = object ? read_object(&parser, object) : parse_into(&parser, text);
  if (qn_ok(status)) status = qn__target_resolve(target);
  if (qn_ok(status)) status = qn__target_seal(target);
  if (qn_ok(status)) {
    *out_target = target;
  } else {
    qn_target_release(target);
  }
  return status;
}

qn_status_t qn__target_parse(qn_str_t text, qn_allocator_t allocator, qn_target_t** out_target) {
  return make(text, NULL, allocator, false, out_target);
}
