/* Loaded before libc (LD_PRELOAD): notes every call that changes a file under HITHERTO_WATCH, in the order of
 * their effects, in HITHERTO_LOG; and lets the k-th of them fail when asked to by hitherto_fail(k, errno, n).
 *
 * A note is {char what; int32 file; int64 at; int64 length} and the bytes: O opened (bytes: its name), P written
 * at an offset, W written at the end, T cut to a length, S synced, U removed (bytes: its name).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define FILES 4096

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static const char *watched;
static int log_file = -1;
static char known[FILES]; /* 1: a file to record, 2: one that is recorded and never fails */
static long countdown, failures, calls;
static int failure;

static int (*real_open)(const char *, int, ...);
static int (*real_close)(int);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off64_t);
static int (*real_truncate)(int, off64_t);
static int (*real_fsync)(int);
static int (*real_fdatasync)(int);
static int (*real_unlink)(const char *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("HITHERTO_LOG");
    real_open = dlsym(RTLD_NEXT, "open64");
    real_close = dlsym(RTLD_NEXT, "close");
    real_write = dlsym(RTLD_NEXT, "write");
    real_pwrite = dlsym(RTLD_NEXT, "pwrite64");
    real_truncate = dlsym(RTLD_NEXT, "ftruncate64");
    real_fsync = dlsym(RTLD_NEXT, "fsync");
    real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
    real_unlink = dlsym(RTLD_NEXT, "unlink");
    watched = getenv("HITHERTO_WATCH");
    if (path != NULL) log_file = real_open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static int is_watched(int file) { return file >= 0 && file < FILES && known[file]; }

static void note(char what, int file, int64_t at, const void *bytes, int64_t length) {
    struct __attribute__((packed)) { char what; int32_t file; int64_t at; int64_t length; } head;
    ssize_t ignored;
    if (log_file < 0) return;
    head.what = what, head.file = file, head.at = at, head.length = bytes == NULL ? 0 : length;
    ignored = real_write(log_file, &head, sizeof head);
    if (bytes != NULL) ignored = real_write(log_file, bytes, (size_t)length);
    (void)ignored;
}

/* From now on, let the k-th call and the n - 1 after it fail; k = 0: none. */
void hitherto_fail(long k, int error, long n) {
    pthread_mutex_lock(&lock);
    countdown = k, failures = k ? n : 0, failure = error, calls = 0;
    pthread_mutex_unlock(&lock);
}

/* How many calls there were since then. */
long hitherto_calls(void) { return calls; }

static int fails(int file) {
    if (file >= 0 && known[file] == 2) return 0;
    calls++;
    if (countdown > 1) { countdown--; return 0; }
    if (countdown == 1 && failures > 0) { failures--; errno = failure; return 1; }
    return 0;
}

static int opened(const char *path, int flags, mode_t mode) {
    int file, mine = watched != NULL && strncmp(path, watched, strlen(watched)) == 0;
    if (!mine) return real_open(path, flags, mode);
    pthread_mutex_lock(&lock);
    int ack = strstr(path, "/acks") != NULL, fresh = (flags & O_CREAT) != 0;
    if (fresh && !ack && fails(-1)) { pthread_mutex_unlock(&lock); return -1; }
    file = real_open(path, flags, mode);
    if (file >= 0 && file < FILES) {
        known[file] = ack ? 2 : 1;
        note('O', file, fresh, path, (int64_t)strlen(path));
    }
    pthread_mutex_unlock(&lock);
    return file;
}

int open64(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int open(const char *path, int flags, ...) {
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return opened(path, flags, mode);
}

int close(int file) {
    if (file >= 0 && file < FILES) known[file] = 0;
    return real_close(file);
}

ssize_t write(int file, const void *bytes, size_t length) {
    if (!is_watched(file)) return real_write(file, bytes, length);
    pthread_mutex_lock(&lock);
    ssize_t done = fails(file) ? -1 : real_write(file, bytes, length);
    if (done > 0) note('W', file, 0, bytes, done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite64(int file, const void *bytes, size_t length, off64_t at) {
    if (!is_watched(file)) return real_pwrite(file, bytes, length, at);
    pthread_mutex_lock(&lock);
    ssize_t done = fails(file) ? -1 : real_pwrite(file, bytes, length, at);
    if (done > 0) note('P', file, at, bytes, done);
    pthread_mutex_unlock(&lock);
    return done;
}

ssize_t pwrite(int file, const void *bytes, size_t length, off_t at) { return pwrite64(file, bytes, length, at); }

int ftruncate64(int file, off64_t length) {
    if (!is_watched(file)) return real_truncate(file, length);
    pthread_mutex_lock(&lock);
    int done = fails(file) ? -1 : real_truncate(file, length);
    if (done == 0) note('T', file, length, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int ftruncate(int file, off_t length) { return ftruncate64(file, length); }

static int synced(int file, int (*real)(int)) {
    if (!is_watched(file)) return real(file);
    pthread_mutex_lock(&lock);
    int done = fails(file) ? -1 : real(file);
    if (done == 0) note('S', file, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

int fsync(int file) { return synced(file, real_fsync); }
int fdatasync(int file) { return synced(file, real_fdatasync); }

int unlink(const char *path) {
    if (watched == NULL || strncmp(path, watched, strlen(watched)) != 0) return real_unlink(path);
    pthread_mutex_lock(&lock);
    int done = fails(-1) ? -1 : real_unlink(path);
    if (done == 0) note('U', -1, 0, path, (int64_t)strlen(path));
    pthread_mutex_unlock(&lock);
    return done;
}
