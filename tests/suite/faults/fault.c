/* Injects one fault into a program that loads this library with LD_PRELOAD.
 *
 * FAULT_FILE: the input. FAULT_AT: an offset in it, in bytes. FAULT: the fault at the first read of
 * bytes at or after that offset:
 *   eio             this read and all later ones fail
 *   truncate        the file is truncated there
 *   rotate          the file is renamed to NAME.1, and a new file of its name is created
 *   int, term, hup  the program gets SIGINT, SIGTERM or SIGHUP
 *   twice           the program gets SIGINT twice
 * FAULT_WRITE: number of the change to the file system (first write to a file, rename, mkdir,
 *   unlink) at which the program is killed: before the change, or after half of a first write.
 * FAULT_SIGNAL: a signal that the program gets twice instead of SIGKILL.
 * FAULT_LOG: a file that gets a line for each of these changes, and for each fsync.
 * FAULT_THREADS: maximum number of threads that can be started.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static int done;
static long changes;

static int is_input(int fd)
{
    const char *path = getenv("FAULT_FILE");
    struct stat file, found;
    return path && fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && stat(path, &file) == 0
        && file.st_ino == found.st_ino && file.st_dev == found.st_dev;
}

/* Adds a line to the log with system calls, because the functions below would log it again. */
static void note(const char *what, const char *from, const char *to)
{
    const char *log = getenv("FAULT_LOG");
    if (!log)
        return;
    char line[8192];
    int length = snprintf(line, sizeof line, to ? "%s %s %s\n" : "%s %s\n", what, from, to);
    int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || syscall(SYS_write, fd, line, length) != length || close(fd) != 0)
        abort();
}

static void note_open(const char *what, int fd)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        abort();
    path[length] = 0;
    note(what, path, NULL);
}

/* Time for the thread that handles the signal, which a busy machine may run late. During a rename
 * or removal it is short, because the handler may wait for the thread that renames or removes. */
#define WHILE_READING_US 500000
#define WHILE_WRITING_US 2000000
#define WHILE_RENAMING_US 10000

static void change(useconds_t wait_us)
{
    const char *at = getenv("FAULT_WRITE"), *other = getenv("FAULT_SIGNAL");
    if (!at || ++changes != atol(at))
        return;
    if (!other)
        kill(getpid(), SIGKILL);
    raise(atoi(other));
    raise(atoi(other));
    usleep(wait_us);
}

/* Permitted length in bytes of a read of the input at this offset; -1 if the read fails. */
static ssize_t allowed(off_t offset, size_t length)
{
    const char *path = getenv("FAULT_FILE"), *fault = getenv("FAULT");
    long at = atol(getenv("FAULT_AT"));
    if (offset < at)
        return (long)length > at - offset ? at - offset : (ssize_t)length;
    if (strcmp(fault, "eio") == 0) {
        errno = EIO;
        return -1;
    }
    if (__atomic_exchange_n(&done, 1, __ATOMIC_SEQ_CST))
        return length;
    if (strcmp(fault, "truncate") == 0 && truncate(path, at) != 0)
        abort();
    if (strcmp(fault, "rotate") == 0) {
        char other[4096];
        snprintf(other, sizeof other, "%s.1", path);
        if (rename(path, other) != 0 || close(creat(path, 0644)) != 0)
            abort();
    }
    if (strcmp(fault, "term") == 0)
        raise(SIGTERM);
    if (strcmp(fault, "hup") == 0)
        raise(SIGHUP);
    if (strcmp(fault, "int") == 0 || strcmp(fault, "twice") == 0)
        raise(SIGINT);
    if (strcmp(fault, "twice") == 0) {
        raise(SIGINT);
        /* The second signal must end the program before it reaches the end of its input. */
        sleep(60);
    }
    /* Otherwise the program may read the rest of the input before it handles the signal. */
    if (strcmp(fault, "term") == 0 || strcmp(fault, "hup") == 0 || strcmp(fault, "int") == 0)
        usleep(WHILE_READING_US);
    return length;
}

ssize_t read(int fd, void *buffer, size_t length)
{
    ssize_t (*next)(int, void *, size_t) = (ssize_t (*)(int, void *, size_t))dlsym(RTLD_NEXT, "read");
    ssize_t may = is_input(fd) ? allowed(lseek(fd, 0, SEEK_CUR), length) : (ssize_t)length;
    return may < 0 ? may : next(fd, buffer, may);
}

ssize_t pread64(int fd, void *buffer, size_t length, off64_t offset)
{
    ssize_t (*next)(int, void *, size_t, off64_t) = (ssize_t (*)(int, void *, size_t, off64_t))dlsym(RTLD_NEXT, "pread64");
    ssize_t may = is_input(fd) ? allowed(offset, length) : (ssize_t)length;
    return may < 0 ? may : next(fd, buffer, may, offset);
}

ssize_t write(int fd, const void *buffer, size_t length)
{
    ssize_t (*next)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    struct stat found;
    if (fstat(fd, &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0 && length) {
        const char *at = getenv("FAULT_WRITE");
        note_open("write", fd);
        if (at && changes + 1 == atol(at)) {
            ssize_t half = next(fd, buffer, length / 2);
            change(WHILE_WRITING_US);
            return half;
        }
        change(WHILE_WRITING_US);
    }
    return next(fd, buffer, length);
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    note("rename", from, to);
    change(WHILE_RENAMING_US);
    return next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    note("mkdir", path, NULL);
    change(WHILE_RENAMING_US);
    return next(path, mode);
}

int unlinkat(int at, const char *path, int flags)
{
    int (*next)(int, const char *, int) = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    note("unlink", path, NULL);
    change(WHILE_RENAMING_US);
    return next(at, path, flags);
}

int fsync(int fd)
{
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    note_open("fsync", fd);
    return next(fd);
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    static long threads;
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) =
        (int (*)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *))dlsym(RTLD_NEXT, "pthread_create");
    const char *most = getenv("FAULT_THREADS");
    if (most && __atomic_add_fetch(&threads, 1, __ATOMIC_SEQ_CST) > atol(most))
        return EAGAIN;
    return next(thread, attributes, start, argument);
}
