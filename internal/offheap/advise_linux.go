package offheap

import "golang.org/x/sys/unix"

// hugePage is the size in bytes of a huge page on x86-64. Smaller regions gain nothing.
const hugePage = 2 << 20

// advise asks for huge pages. If the kernel has none, small pages do the same job.
func advise(pages []byte) {
	if len(pages) >= hugePage {
		_ = unix.Madvise(pages, unix.MADV_HUGEPAGE)
	}
}
