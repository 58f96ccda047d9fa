/* sctpd reads what anyone on the network sends: whoever takes it over gets as little as possible. */
#include "privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"

#define BIT(capability) (1U << (capability))
#define USER "sctpd"
#define KEPT (BIT(CAP_NET_RAW) | BIT(CAP_NET_ADMIN)) /* for packets; for buffers larger than net.core.wmem_max */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef ARCHITECTURE /* these trace the process at its end */
#endif

/* Root's files are not sctpd's business. It becomes the user that `make install` and the package make, else the one that owns nothing. In a user
 * namespace that has neither it stays what it is, an ordinary user outside. Return 0 or -errno. */
static int become_another_user(void)
{
	const struct passwd *user = getpwnam(USER);

#ifdef __SANITIZE_ADDRESS__
	return 0; /* it writes its reports at its end, where the one who started it may */
#endif
	if (user == NULL)
		user = getpwnam("nobody");
	if (geteuid() != 0 || user == NULL)
		return 0;
	if (prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0)
		return -errno;
	if (setgroups(0, NULL) < 0 || setresgid(user->pw_gid, user->pw_gid, user->pw_gid) < 0 || setresuid(user->pw_uid, user->pw_uid, user->pw_uid) < 0)
		return errno == EINVAL || errno == EPERM ? 0 : -errno;
	return 0;
}

/* The process keeps those that it has, which may be less than all. Return 0 or -errno. */
static int keep_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	int capability, error;

	for (capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
		if (capability >= 32 || !(KEPT & BIT(capability)))
			prctl(PR_CAPBSET_DROP, capability, 0, 0, 0); /* only who has CAP_SETPCAP may */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	error = become_another_user();
	if (error != 0)
		return error;
	if (syscall(SYS_capget, &header, data) < 0)
		return -errno;
	data[0].permitted &= KEPT;
	data[0].effective = data[0].permitted;
	data[1].permitted = data[1].effective = data[0].inheritable = data[1].inheritable = 0;
	return syscall(SYS_capset, &header, data) < 0 ? -errno : 0;
}

/* A file may have the capability as one that is permitted only (cap_net_raw+p): it can then be started where nobody gets it, too. */
void privilege_take(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		return;
	data[0].effective |= data[0].permitted & KEPT;
	syscall(SYS_capset, &header, data);
}

#ifdef ARCHITECTURE
/* All that serving takes. Other programs, other processes, files to write, what newer kernels bring: nothing of that is here. */
static const unsigned int allowed[] = {
#ifdef SYS_open /* not on arm64 */
	SYS_epoll_wait, SYS_poll, SYS_dup2, SYS_stat, SYS_time, SYS_getrlimit,
#endif
	SYS_recvmmsg, SYS_sendmsg, SYS_recvmsg, SYS_epoll_pwait, SYS_epoll_ctl, SYS_ppoll, SYS_sendto, SYS_recvfrom, SYS_clock_gettime,
	SYS_read, SYS_write, SYS_writev, SYS_close, SYS_lseek, SYS_dup, SYS_dup3, SYS_fcntl, SYS_ioctl, SYS_fstat, SYS_newfstatat, SYS_ftruncate,
	SYS_socket, SYS_socketpair, SYS_bind, SYS_connect, SYS_accept4, SYS_getsockname, SYS_getpeername, SYS_getsockopt, SYS_setsockopt,
	SYS_shutdown, SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_memfd_create, SYS_futex, SYS_getrandom,
	SYS_gettimeofday, SYS_setitimer, SYS_sysinfo, SYS_getpid, SYS_gettid, SYS_geteuid, SYS_prlimit64, SYS_rt_sigaction, SYS_rt_sigprocmask,
	SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
};
#define ALLOWED (sizeof(allowed) / sizeof(allowed[0]))

/* Return 0 or -errno. */
static int refuse_calls(void)
{
	static const struct sock_filter begin[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
	};
	static const struct sock_filter end[] = { /* files may be opened to read */
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ACCMODE | O_CREAT | O_TRUNC, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
	};
	struct sock_filter filter[4 + 2 * ALLOWED + 5], *next = filter;
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };
	size_t i;

	memcpy(next, begin, sizeof(begin));
	next += sizeof(begin) / sizeof(begin[0]);
	for (i = 0; i < ALLOWED; i++) {
		*next++ = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
		*next++ = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	memcpy(next, end, sizeof(end));
	return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) != 0 ? -errno : 0;
}
#else
static int refuse_calls(void)
{
	return 0;
}
#endif

int privilege_drop(void)
{
	int error = keep_capabilities();

	return error == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : error;
}

int privilege_refuse_calls(void)
{
	const int error = refuse_calls();

	if (error == -EINVAL || error == -ENOSYS)
		log_line("this kernel filters no system calls (seccomp): none is refused");
	return error == -EINVAL || error == -ENOSYS ? 0 : error;
}
