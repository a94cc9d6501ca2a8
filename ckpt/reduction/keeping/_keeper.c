/* A process that keeps the memory of this one: it has the same address space, and goes on to exist when this one is killed.
 *
 * Linux drops an address space when the last process that uses it has ended. start() makes one more, by clone(2) with
 * CLONE_VM, that sleeps. It has no descriptors, a session of its own (signals to the process group do not reach it), and
 * blocks all signals. It is no child for wait(2) without __WCLONE. What it does is in `keep`, on a stack of its own, by system
 * calls without the C library: that would share `errno` with the thread that called start().
 *
 * It ends when stop() is called; once its process is dead, when that one's parent has ended too, when the file is removed of
 * which start() was told, or after ten minutes. Where memory is short, the kernel's killer ends all that share it at once.
 *
 * read() reads the memory of such a process, by process_vm_readv(2).
 *
 * map() maps a file, with the interpreter's lock held from before the file is opened until it is closed: so no image is taken
 * in between, which would have the descriptor, and could be loaded only where that file is still there. A long new file takes
 * so long that the lock is given up meanwhile: who makes one has the lock of the port, without which there is no image. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (16 << 10)
#define SHORT_BYTES (1 << 20) /* of a new file: 0.1 ms */
#define LOOK_NS 50000000L /* between two looks at the file, once the process is dead */
#define LOOKS 12000       /* so many at most: ten minutes */
#ifndef PR_SET_PTRACER
#define PR_SET_PTRACER 0x59616d61
#endif

#if defined(__x86_64__)
static long call(long number, long a, long b, long c, long d, long e)
{
    long result;
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}
#define CAN_KEEP 1
#elif defined(__aarch64__)
static long call(long number, long a, long b, long c, long d, long e)
{
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    return x0;
}
#define CAN_KEEP 1
#else
#define CAN_KEEP 0
#endif

#if CAN_KEEP
/* At the low end of the stack of such a process. */
struct kept {
    long process; /* whose memory is kept */
    char path[256];
};

static int keep(void *stack)
{
    const struct kept *kept = stack;
    unsigned long wanted = 1UL << (SIGTERM - 1);
    struct timespec pause = {0, LOOK_NS};
    call(SYS_prctl, PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0);
    call(SYS_prctl, PR_SET_PTRACER, -1, 0, 0, 0);
    call(SYS_prctl, PR_SET_NAME, (long)"ckpt-keeper", 0, 0, 0);
    call(SYS_setsid, 0, 0, 0, 0, 0);
    call(SYS_close_range, 0, 0x7fffffff, 0, 0, 0);
    while (call(SYS_getppid, 0, 0, 0, 0, 0) == kept->process)
        call(SYS_rt_sigtimedwait, (long)&wanted, 0, 0, sizeof wanted, 0);
    long adopter = call(SYS_getppid, 0, 0, 0, 0, 0);
    for (int look = 0; look < LOOKS; look++) {
        if (call(SYS_faccessat, AT_FDCWD, (long)kept->path, F_OK, 0, 0)) break;
        if (call(SYS_getppid, 0, 0, 0, 0, 0) != adopter) break;
        call(SYS_rt_sigtimedwait, (long)&wanted, 0, (long)&pause, sizeof wanted, 0);
    }
    call(SYS_exit_group, 0, 0, 0, 0, 0);
    return 0;
}
#endif

static PyObject *start(PyObject *module, PyObject *args)
{
    const char *path;
    (void)module;
    if (!PyArg_ParseTuple(args, "s:start", &path)) return NULL;
#if CAN_KEEP
    if (strlen(path) >= sizeof ((struct kept *)0)->path) {
        PyErr_SetString(PyExc_ValueError, "the path is too long");
        return NULL;
    }
    char *stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) return PyErr_SetFromErrno(PyExc_OSError);
    struct kept *kept = (struct kept *)stack;
    strcpy(kept->path, path);
    kept->process = getpid();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    int pid = clone(keep, stack + STACK_BYTES, CLONE_VM, stack);
    int code = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (pid >= 0) return Py_BuildValue("(iK)", pid, (unsigned long long)(uintptr_t)stack);
    munmap(stack, STACK_BYTES);
    errno = code;
#else
    errno = ENOSYS;
#endif
    return PyErr_SetFromErrno(PyExc_OSError);
}

static PyObject *stop(PyObject *module, PyObject *args)
{
    int pid;
    unsigned long long stack;
    (void)module;
    if (!PyArg_ParseTuple(args, "iK:stop", &pid, &stack)) return NULL;
    kill(pid, SIGKILL); /* a child of this process: its number is its own until it was waited for */
    while (waitpid(pid, NULL, __WCLONE) < 0 && errno == EINTR)
        ;
    munmap((void *)(uintptr_t)stack, STACK_BYTES);
    Py_RETURN_NONE;
}

static PyObject *read_memory(PyObject *module, PyObject *args)
{
    int pid;
    unsigned long long address;
    Py_buffer into;
    (void)module;
    if (!PyArg_ParseTuple(args, "iKw*:read", &pid, &address, &into)) return NULL;
    Py_ssize_t done = 0;
    int code = 0;
    Py_BEGIN_ALLOW_THREADS
    while (done < into.len && !code) {
        struct iovec local = {(char *)into.buf + done, (size_t)(into.len - done)};
        struct iovec remote = {(void *)(uintptr_t)(address + (unsigned long long)done), local.iov_len};
        ssize_t n = process_vm_readv(pid, &local, 1, &remote, 1, 0);
        if (n > 0)
            done += n;
        else if (n == 0 || errno != EINTR)
            code = n ? errno : EFAULT;
    }
    Py_END_ALLOW_THREADS
    PyBuffer_Release(&into);
    if (code) {
        errno = code;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    Py_RETURN_NONE;
}

static PyObject *map_file(PyObject *module, PyObject *args)
{
    const char *path;
    unsigned long long nbytes;
    (void)module;
    if (!PyArg_ParseTuple(args, "sK:map", &path, &nbytes)) return NULL;
    int is_new = nbytes != 0, flags = O_NOFOLLOW | O_CLOEXEC;
    int fd = open(path, is_new ? flags | O_RDWR | O_CREAT | O_EXCL : flags | O_RDONLY, 0600);
    if (fd < 0) return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
    struct stat status;
    int code = 0;
    void *memory = MAP_FAILED;
    if (is_new) { /* with its memory: else a full one would be a SIGBUS later */
        PyThreadState *other = nbytes > SHORT_BYTES ? PyEval_SaveThread() : NULL;
        code = posix_fallocate(fd, 0, (off_t)nbytes);
        if (other) PyEval_RestoreThread(other);
    } else if (fstat(fd, &status))
        code = errno;
    else
        nbytes = (unsigned long long)status.st_size;
    if (!code) {
        memory = mmap(NULL, nbytes, is_new ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
        if (memory == MAP_FAILED) code = errno;
    }
    close(fd);
    if (!code) return Py_BuildValue("(KK)", (unsigned long long)(uintptr_t)memory, nbytes);
    if (is_new) unlink(path);
    errno = code;
    return PyErr_SetFromErrnoWithFilename(PyExc_OSError, path);
}

static PyMethodDef methods[] = {
    {"start", start, METH_VARARGS, "start(path) -> (pid, stack): a process that keeps this one's memory, at most until the file is removed. OSError"},
    {"stop", stop, METH_VARARGS, "stop(pid, stack): end it."},
    {"read", read_memory, METH_VARARGS, "read(pid, address, into): fill a writable buffer from a process's memory. OSError"},
    {"map", map_file, METH_VARARGS,
     "map(path, nbytes) -> (address, nbytes): a new file of so many bytes, to be written to; 0: one that is there, to be read. OSError"},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT,
    .m_name = "ckpt.reduction.keeping._keeper",
    .m_doc = "A process that keeps the memory of this one when it is killed.",
    .m_size = -1,
    .m_methods = methods,
};

PyMODINIT_FUNC PyInit__keeper(void)
{
    return PyModule_Create(&module);
}
