/* Makes one thing go wrong at one moment in a program that this is loaded before (LD_PRELOAD).
 *
 * FAULT_FILE: the input. FAULT_AT: an offset in it. FAULT: what happens when bytes from there on are asked for, the first time:
 *   eio       the read fails, and each later one
 *   truncate  the file is cut there
 *   rotate    the file is renamed to NAME.1, and another of its name is begun
 *   int, term SIGINT or SIGTERM comes
 *   twice     SIGINT comes twice
 * FAULT_WRITE: number of the change to the file system (writes to a file, rename, mkdir, unlink) at which the program is killed: before it, or, where
 *   it is the first write to a file, when half of that is done.
 */
#define _GNU_SOURCE
#define _LARGEFILE64_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

static void change(void)
{
    const char *at = getenv("FAULT_WRITE");
    if (at && ++changes == atol(at))
        kill(getpid(), SIGKILL);
}

/* What a read of the input at this offset may be long; -1 where it fails. */
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
    if (strcmp(fault, "int") == 0 || strcmp(fault, "twice") == 0)
        raise(SIGINT);
    if (strcmp(fault, "twice") == 0)
        raise(SIGINT);
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
        if (at && changes + 1 == atol(at))
            next(fd, buffer, length / 2);
        change();
    }
    return next(fd, buffer, length);
}

int rename(const char *from, const char *to)
{
    int (*next)(const char *, const char *) = (int (*)(const char *, const char *))dlsym(RTLD_NEXT, "rename");
    change();
    return next(from, to);
}

int mkdir(const char *path, mode_t mode)
{
    int (*next)(const char *, mode_t) = (int (*)(const char *, mode_t))dlsym(RTLD_NEXT, "mkdir");
    change();
    return next(path, mode);
}

int unlinkat(int at, const char *path, int flags)
{
    int (*next)(int, const char *, int) = (int (*)(int, const char *, int))dlsym(RTLD_NEXT, "unlinkat");
    change();
    return next(at, path, flags);
}
