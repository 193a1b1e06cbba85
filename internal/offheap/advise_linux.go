package offheap

import "golang.org/x/sys/unix"

// hugePage is the size of a huge page on the systems we know; smaller regions gain
// nothing.
const hugePage = 2 << 20

// advise asks for huge pages. It is a wish: where the kernel has none to give, small
// pages do the same.
func advise(pages []byte) {
	if len(pages) >= hugePage {
		_ = unix.Madvise(pages, unix.MADV_HUGEPAGE)
	}
}
