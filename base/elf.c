// SPDX-License-Identifier: Apache-2.0
// base/elf.c: reads the few bytes of an ELF file that hold its build id.
//
// Everything in the file is checked before it is used: counts are bounded, offsets go through
// pread, which returns less at the end. Only program headers are read (they survive stripping), and
// only the host's own class and byte order. Not here: mapped objects (elf_mapped.c).
#include "base/elf.h"

#include <elf.h>
#include <fcntl.h>

#include "base/fs.h"

enum { SEGMENT_LIMIT = 64, NOTES_LIMIT_BYTES = 4096, ID_LIMIT_BYTES = 32 };

static uint32_t load_u32(const uint8_t* at) {
  uint32_t value;
  memcpy(&value, at, sizeof value);
  return value;
}

static size_t round_up_4(size_t size) {
  return (size + 3) & ~(size_t)3;
}

bool qn__elf_build_id_of_notes(qn_span_t notes, char out[QN__BUILD_ID_HEX_BYTES]) {
  out[0] = '\0';
  size_t at = 0;
  while (at <= notes.size && notes.size - at >= sizeof(Elf64_Nhdr)) {
    size_t name_size = load_u32(notes.data + at);
    size_t id_size = load_u32(notes.data + at + 4);
    uint32_t type = load_u32(notes.data + at + 8);
    at += sizeof(Elf64_Nhdr);
    if (name_size > notes.size - at || round_up_4(name_size) > notes.size - at) return false;
    const uint8_t* name = notes.data + at;
    at += round_up_4(name_size);
    if (id_size > notes.size - at) return false;
    if (type == NT_GNU_BUILD_ID && name_size == 4 && memcmp(name, "GNU", 4) == 0) {
      if (id_size == 0 || id_size > ID_LIMIT_BYTES) return false;
      *qn__hex(out, notes.data + at, id_size) = '\0';
      return true;
    }
    at += round_up_4(id_size);
  }
  return false;
}

static bool read_build_id(int fd, char out[QN__BUILD_ID_HEX_BYTES]) {
  Elf64_Ehdr header;
  if (qn__fs_pread_all(fd, &header, sizeof header, 0) != 0) return false;
  const uint16_t one = 1;
  uint8_t is_little;
  memcpy(&is_little, &one, 1);
  if (memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != (is_little ? ELFDATA2LSB : ELFDATA2MSB) ||
      header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > SEGMENT_LIMIT) {
    return false;
  }
  for (uint64_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    uint64_t offset;
    if (__builtin_add_overflow(header.e_phoff, i * sizeof segment, &offset) ||
        qn__fs_pread_all(fd, &segment, sizeof segment, offset) != 0) {
      return false;
    }
    uint8_t notes[NOTES_LIMIT_BYTES];
    if (segment.p_type != PT_NOTE || segment.p_filesz > sizeof notes) continue;
    const size_t size = (size_t)segment.p_filesz;
    if (qn__fs_pread_all(fd, notes, size, segment.p_offset) != 0) return false;
    if (qn__elf_build_id_of_notes((qn_span_t){notes, size}, out)) return true;
  }
  return false;
}

bool qn__elf_build_id(const char* path, char out[QN__BUILD_ID_HEX_BYTES]) {
  out[0] = '\0';
  int fd = qn__fs()->open(path, O_RDONLY | O_CLOEXEC, 0);
  if (fd < 0) return false;
  bool is_found = read_build_id(fd, out);
  (void)qn__fs()->close(fd);
  if (!is_found) out[0] = '\0';
  return is_found;
}
