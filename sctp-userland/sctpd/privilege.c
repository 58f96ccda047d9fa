/* sctpd reads what anyone on the network sends: whoever takes it over gets as little as possible. */
#include "privilege.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "loop.h"

#define BIT(capability) (1U << (capability))
#define KEPT (BIT(CAP_NET_RAW) | BIT(CAP_NET_ADMIN)) /* for packets; for buffers larger than net.core.wmem_max */

#if defined(__x86_64__)
#define ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define ARCHITECTURE AUDIT_ARCH_AARCH64
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#undef ARCHITECTURE /* these trace the process at its end */
#endif

/* Of what the process has, which may be less than all. Return 0 or -errno. */
static int keep_capabilities(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];
	int capability;

	for (capability = 0; prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; capability++)
		if (capability >= 32 || !(KEPT & BIT(capability)))
			prctl(PR_CAPBSET_DROP, capability, 0, 0, 0); /* only who has CAP_SETPCAP may */
	prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
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
#define REFUSE(call)                                                                                                               \
	BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_##call, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM)

/* No other program, no other process's memory, no file to write to, nothing of the host's. Return 0 or -errno. */
static int refuse_calls(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, ARCHITECTURE, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		REFUSE(execve), REFUSE(execveat), REFUSE(ptrace), REFUSE(process_vm_readv), REFUSE(process_vm_writev),
		REFUSE(open_by_handle_at), REFUSE(unlinkat), REFUSE(renameat2), REFUSE(linkat), REFUSE(symlinkat), REFUSE(mkdirat),
		REFUSE(mknodat), REFUSE(fchmodat), REFUSE(fchownat), REFUSE(truncate), REFUSE(mount), REFUSE(umount2),
		REFUSE(pivot_root), REFUSE(chroot), REFUSE(setns), REFUSE(init_module), REFUSE(finit_module), REFUSE(delete_module),
		REFUSE(kexec_load), REFUSE(bpf), REFUSE(perf_event_open), REFUSE(userfaultfd), REFUSE(keyctl), REFUSE(add_key),
		REFUSE(request_key), REFUSE(reboot), REFUSE(swapon), REFUSE(settimeofday), REFUSE(clock_settime),
#ifdef SYS_open
		REFUSE(open), REFUSE(creat), REFUSE(unlink), REFUSE(rename), REFUSE(link), REFUSE(symlink), REFUSE(mkdir), REFUSE(mknod),
		REFUSE(chmod), REFUSE(chown), REFUSE(renameat),
#endif
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
		BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, O_ACCMODE | O_CREAT | O_TRUNC, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { sizeof(filter) / sizeof(filter[0]), filter };

	return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0 ? -errno : 0;
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

	if (error == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		error = -errno;
	if (error != 0)
		return error;
	error = refuse_calls();
	if (error == -EINVAL || error == -ENOSYS)
		log_line("this kernel filters no system calls (seccomp): none is refused");
	return error == -EINVAL || error == -ENOSYS ? 0 : error;
}
