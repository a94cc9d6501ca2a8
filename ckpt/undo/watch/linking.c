/* Leads calls of functions of the C library to others (watch_replacements), in the shared objects of this process.

   A shared object calls what it imports through a table of addresses, its global offset table, which the dynamic linker has
   filled. Here the addresses of some functions in it are replaced, as GOTCHA and other tools of high-performance computing do.

   Which addresses: those of functions that the shared object imports from the C library; the versions of its symbols tell them
   from functions of the same name that come from elsewhere. Not changed are the tables of this module, and of libraries that
   stand in for the C library. In the interpreter only a few are replaced, since its other operations raise audit events: `openat`,
   as the event of `os.open(path, flags, dir_fd=fd)` does not name the directory, and what changes positions and lengths, or makes
   special files, of which there are no events.

   When: new shared objects are treated after each `dlopen` of the interpreter, when ctypes looks up a function, and at each event
   that is told. A library's own `dlopen` is left, because the linker searches where its caller says (RPATH); what it has loaded is
   found at the next of these moments.

   For glibc on x86-64 and arm64; elsewhere nothing is replaced. */

#include "watch.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#if defined(__x86_64__)
#define IS_ENTRY(type) ((type) == R_X86_64_JUMP_SLOT || (type) == R_X86_64_GLOB_DAT || (type) == R_X86_64_64)
#elif defined(__aarch64__)
#define IS_ENTRY(type) ((type) == R_AARCH64_JUMP_SLOT || (type) == R_AARCH64_GLOB_DAT || (type) == R_AARCH64_ABS64)
#else
#define IS_ENTRY(type) 0
#endif

/* The parts of a shared object that say what it imports (the System V ABI, chapter 5; versions: the Linux Standard Base). */
struct object {
    const struct dl_phdr_info *info;
    const ElfW(Sym) * symbols;
    const char *names;
    const ElfW(Half) * versions; /* of each symbol */
    const ElfW(Verneed) * needed;
    const ElfW(Rela) * tables[2]; /* relocations: of data, of calls */
    size_t counts[2];
    ElfW(Addr) relro, relro_end; /* written by the dynamic linker only */
    int is_interpreter;
};

static const void *pointer(const struct dl_phdr_info *info, ElfW(Addr) value)
{
    return (const void *)(value < info->dlpi_addr ? value + info->dlpi_addr : value); /* musl leaves offsets */
}

static int holds(const struct dl_phdr_info *info, const void *address)
{
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        ElfW(Addr) start = info->dlpi_addr + part->p_vaddr, at = (ElfW(Addr))address;
        if (part->p_type == PT_LOAD && at >= start && at < start + part->p_memsz)
            return 1;
    }
    return 0;
}

static int read_object(struct object *object, const struct dl_phdr_info *info)
{
    const ElfW(Dyn) *entry = NULL;
    size_t relative = 0;
    memset(object, 0, sizeof *object);
    object->info = info;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_DYNAMIC)
            entry = (const void *)(info->dlpi_addr + part->p_vaddr);
        if (part->p_type == PT_GNU_RELRO) {
            object->relro = info->dlpi_addr + part->p_vaddr;
            object->relro_end = object->relro + part->p_memsz;
        }
    }
    for (; entry && entry->d_tag != DT_NULL; entry++)
        switch (entry->d_tag) {
        case DT_SYMTAB:
            object->symbols = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_STRTAB:
            object->names = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_VERSYM:
            object->versions = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_VERNEED:
            object->needed = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_RELA:
            object->tables[0] = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_RELASZ:
            object->counts[0] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_RELACOUNT:
            relative = entry->d_un.d_val;
            break;
        case DT_JMPREL:
            object->tables[1] = pointer(info, entry->d_un.d_ptr);
            break;
        case DT_PLTRELSZ:
            object->counts[1] = entry->d_un.d_val / sizeof(ElfW(Rela));
            break;
        case DT_PLTREL:
            if (entry->d_un.d_val != DT_RELA)
                return 0;
            break;
        }
    if (object->tables[0] && relative <= object->counts[0]) { /* these name no symbols, and come first */
        object->tables[0] += relative;
        object->counts[0] -= relative;
    }
    return object->symbols && object->names && object->versions && object->needed;
}

/* Is the symbol one of the C library? (dlopen and the like were in libraries of their own.) */
static int is_of_libc(const struct object *object, size_t symbol)
{
    static const char *const files[] = {"libc.so.", "libdl.so.", "libpthread.so.", NULL};
    int version = object->versions[symbol] & 0x7fff;
    const ElfW(Verneed) *need = object->needed;
    for (;;) {
        const ElfW(Vernaux) *each = (const void *)((const char *)need + need->vn_aux);
        for (int i = 0; i < need->vn_cnt; i++) {
            if ((each->vna_other & 0x7fff) == version) {
                const char *file = object->names + need->vn_file;
                for (const char *const *name = files; *name; name++)
                    if (!strncmp(file, *name, strlen(*name)))
                        return 1;
                return 0;
            }
            each = (const void *)((const char *)each + each->vna_next);
        }
        if (!need->vn_next)
            return 0;
        need = (const void *)((const char *)need + need->vn_next);
    }
}

static void *our_dlopen(const char *path, int flags)
{
    void *found = dlopen(path, flags);
    int before = errno;
    if (found && watch_pid)
        watch_libraries();
    errno = before;
    return found;
}

static void *replacement_for(const char *name)
{
    for (const struct replacement *each = watch_replacements; each->name; each++)
        if (name[0] == each->name[0] && !strcmp(name, each->name))
            return each->function;
    return NULL;
}

static void *replacement_in_interpreter(const char *name)
{
    if (!strcmp(name, "dlopen"))
        return our_dlopen;
    static const char *const beginnings[] = {"openat", "ftruncate", "lseek", "pwrite", "copy_file_range",
                                            "mknod",  "mkfifo",    NULL};
    for (const char *const *each = beginnings; *each; each++)
        if (!strncmp(name, *each, strlen(*each)))
            return replacement_for(name);
    return NULL;
}

static void set_entry(const struct object *object, void **entry, void *function)
{
    ElfW(Addr) page = sysconf(_SC_PAGESIZE), at = (ElfW(Addr))entry & ~(page - 1);
    if (at < (object->relro & ~(page - 1)) || at >= (object->relro_end & ~(page - 1))) {
        __atomic_store_n(entry, function, __ATOMIC_RELEASE);
        return;
    }
    /* Written once, and read-only since; or not yet, where another thread is just loading the object. */
    struct iovec from = {&function, sizeof function}, to = {entry, sizeof function};
    if (process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof function ||
        mprotect((void *)at, page, PROT_READ | PROT_WRITE))
        return;
    __atomic_store_n(entry, function, __ATOMIC_RELEASE);
    mprotect((void *)at, page, PROT_READ);
}

static void replace_in(const struct object *object)
{
    for (int which = 0; which < 2; which++)
        for (size_t i = 0; i < object->counts[which] && object->tables[which]; i++) {
            const ElfW(Rela) *entry = &object->tables[which][i];
            size_t symbol = ELF64_R_SYM(entry->r_info);
            if (!IS_ENTRY(ELF64_R_TYPE(entry->r_info)) || entry->r_addend ||
                object->symbols[symbol].st_shndx != SHN_UNDEF)
                continue;
            const char *name = object->names + object->symbols[symbol].st_name;
            void *function = object->is_interpreter ? replacement_in_interpreter(name) : replacement_for(name);
            if (function && is_of_libc(object, symbol))
                set_entry(object, (void **)(object->info->dlpi_addr + entry->r_offset), function);
        }
}

/* Shared objects that have been treated, in the order in which they were loaded. Used within dl_iterate_phdr only, during which
   the dynamic linker holds its lock. */
static struct {
    const ElfW(Phdr) * *objects;
    size_t count, room;
    unsigned long long added, removed; /* by the dynamic linker, in all, at the end of the last complete look */
} known;

/* What the functions of the C library lead to here. A library that was loaded before all others (LD_PRELOAD) may stand in for
   some of them: its own calls are left, since they are made on behalf of others, which have been told. */
static void *foremost[8];

static void look_up_foremost(void)
{
    static const char *const names[] = {"open", "open64", "openat", "openat64", "fopen", "fopen64", "rename", "unlink"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        foremost[i] = dlsym(RTLD_DEFAULT, names[i]);
}

static int stands_in(const struct dl_phdr_info *info)
{
    for (size_t i = 0; i < sizeof foremost / sizeof *foremost; i++)
        if (foremost[i] && holds(info, foremost[i]))
            return 1;
    return 0;
}

struct look {
    size_t at;
    unsigned long long added;
};

static int visit_object(struct dl_phdr_info *info, size_t size, void *given)
{
    struct look *look = given;
    size_t at = look->at++;
    look->added = info->dlpi_adds;
    if (at == 0 && info->dlpi_adds == known.added && info->dlpi_subs == known.removed)
        return 1; /* nothing is new */
    if (info->dlpi_subs != known.removed) {
        known.removed = info->dlpi_subs;
        known.count = 0; /* their order is another one, and addresses have been given away again */
    }
    if (at < known.count && known.objects[at] == info->dlpi_phdr)
        return 0;
    if (at >= known.room) {
        size_t room = at * 2 + 64;
        void *larger = realloc(known.objects, room * sizeof *known.objects);
        if (larger == NULL)
            return 1; /* the next time */
        known.objects = larger;
        known.room = room;
    }
    known.objects[at] = info->dlpi_phdr;
    known.count = at + 1;
    struct object object;
    if (!holds(info, &known) && !stands_in(info) && read_object(&object, info)) {
        object.is_interpreter = holds(info, &Py_IsInitialized);
        replace_in(&object);
    }
    return 0;
}

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
const int watch_leads = 1;
#else
const int watch_leads = 0;
#endif

void watch_libraries(void)
{
    struct look look = {0, 0};
    if (!foremost[0])
        look_up_foremost();
    if (!dl_iterate_phdr(visit_object, &look))
        known.added = look.added;
}
