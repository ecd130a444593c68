// ir/passes/map_gpu_sync.c: where the threads of a team must meet.
//
// 1. Of each buffer that different threads may touch it is known who read and wrote since the last
//    barrier: all threads, or the leader alone.
// 2. An access needs a barrier in front if it and an earlier one of another thread touch one buffer
//    and one of the two writes. The leader does not wait for itself.
// 3. Behind an `if` the state is that of both branches; the end of a loop's body that writes is a
//    barrier, so that one iteration does not run into the next.
// Local buffers are private, tables and `in` parameters never written. Thread rule: one thread per
// body. Read next: map_gpu_team.c.
#include "ir/passes/map_gpu_team.h"

// ---- what a piece touches

typedef struct collect {
  qn__gmap_t* map;
  qn__gmap_access_t access;
} collect_t;

static bool has_root(const qn__gmap_roots_t* list, const qn__ir_buffer_t* root) {
  for (; list; list = list->next) {
    if (list->root == root) return true;
  }
  return false;
}

static void add_root(qn__gmap_t* map, const qn__gmap_roots_t** list, const qn__ir_buffer_t* root) {
  if (has_root(*list, root)) return;
  qn__gmap_roots_t* node = QN__ARENA_NEW(map->arena, qn__gmap_roots_t);
  if (!node) return;
  *node = (qn__gmap_roots_t){root, *list};
  *list = node;
}

static void touch(collect_t* self, qn__ir_buffer_t* buffer, bool is_write) {
  const qn__ir_buffer_t* root = qn__buf_root(buffer);
  if (root->scope == QN__SCOPE_CONST || root->scope == QN__SCOPE_LOCAL) return;
  if (root->scope == QN__SCOPE_PARAM && root->access == QN_ACCESS_IN) return;
  add_root(self->map, is_write ? &self->access.writes : &self->access.reads, root);
}

static bool collect_slot(void* context, qn__ir_expr_t** slot) {
  if ((*slot)->kind == QN__EXPR_LOAD) touch(context, (*slot)->load.buffer, false);
  return qn__expr_each_child(*slot, collect_slot, context);
}

static void collect_own(collect_t* self, qn__ir_stmt_t* stmt) {
  (void)qn__stmt_each_expr(stmt, collect_slot, self);
  if (stmt->kind == QN__STMT_STORE) touch(self, stmt->store.buffer, true);
  if (stmt->kind == QN__STMT_ATOMIC) touch(self, stmt->atomic.buffer, true);
}

static void collect_block(collect_t* self, qn__ir_block_t* block) {
  for (qn__ir_stmt_t* stmt = block->first; stmt; stmt = stmt->next) {
    collect_own(self, stmt);
    qn__ir_block_t* blocks[2];
    size_t count = qn__stmt_blocks(stmt, blocks);
    for (size_t i = 0; i < count; ++i) collect_block(self, blocks[i]);
  }
}

qn__gmap_access_t qn__gmap_access_of_own(qn__gmap_t* map, qn__ir_stmt_t* stmt) {
  collect_t self = {map, {NULL, NULL}};
  collect_own(&self, stmt);
  return self.access;
}

qn__gmap_access_t qn__gmap_access_of_block(qn__gmap_t* map, qn__ir_block_t* block) {
  collect_t self = {map, {NULL, NULL}};
  collect_block(&self, block);
  return self.access;
}

qn__gmap_access_t qn__gmap_access_of_stmt(qn__gmap_t* map, qn__ir_stmt_t* stmt) {
  collect_t self = {map, {NULL, NULL}};
  collect_own(&self, stmt);
  qn__ir_block_t* blocks[2];
  size_t count = qn__stmt_blocks(stmt, blocks);
  for (size_t i = 0; i < count; ++i) collect_block(&self, blocks[i]);
  return self.access;
}

// ---- states

static bool meets(const qn__gmap_roots_t* a, const qn__gmap_roots_t* b) {
  for (; a; a = a->next) {
    if (has_root(b, a->root)) return true;
  }
  return false;
}

static bool conflicts(qn__gmap_access_t before, qn__gmap_access_t now) {
  return meets(before.writes, now.reads) || meets(before.writes, now.writes) ||
         meets(before.reads, now.writes);
}

static const qn__gmap_roots_t* join_roots(qn__gmap_t* map, const qn__gmap_roots_t* a,
                                          const qn__gmap_roots_t* b) {
  for (; b; b = b->next) add_root(map, &a, b->root);
  return a;
}

static qn__gmap_access_t join(qn__gmap_t* map, qn__gmap_access_t a, qn__gmap_access_t b) {
  return (qn__gmap_access_t){join_roots(map, a.reads, b.reads),
                             join_roots(map, a.writes, b.writes)};
}

qn__gmap_sync_t qn__gmap_sync_join(qn__gmap_t* map, qn__gmap_sync_t a, qn__gmap_sync_t b) {
  return (qn__gmap_sync_t){join(map, a.by_all, b.by_all), join(map, a.by_leader, b.by_leader)};
}

void qn__gmap_barrier(qn__gmap_team_t* team, qn__ir_block_t* out) {
  qn__ir_stmt_t* barrier = qn__stmt_new(team->map->arena, QN__STMT_BARRIER, (qn__ir_loc_t){0, 0});
  qn__gmap_append(out, barrier);
  team->sync = (qn__gmap_sync_t){{NULL, NULL}, {NULL, NULL}};
}

void qn__gmap_sync(qn__gmap_team_t* team, qn__ir_block_t* out, qn__gmap_access_t access,
                   bool is_leader) {
  // A warp is chosen only where nothing is both read and written.
  if (!team->is_warp && (conflicts(team->sync.by_all, access) ||
                         (!is_leader && conflicts(team->sync.by_leader, access)))) {
    qn__gmap_barrier(team, out);
  }
  qn__gmap_access_t* mine = is_leader ? &team->sync.by_leader : &team->sync.by_all;
  *mine = join(team->map, *mine, access);
}
