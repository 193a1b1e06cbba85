package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Memory is a disk in memory that can lose power. It is as forgetful as POSIX
// allows: a sync of a file saves its bytes but not its name.
type Memory struct {
	mu       sync.Mutex
	root     *node
	capacity int64 // bytes of file content that fit
	locked   map[string]bool
}

// node is a file or a folder. The durable fields are what a power loss cannot take.
type node struct {
	dir bool

	data, durable []byte // of a file

	entries map[string]*node // of a folder
	pending []change         // changes to entries since the last SyncDir, in order
	saved   map[string]*node // entries at the last SyncDir
}

// change is one step in the history of a folder, itself atomic.
type change func(entries map[string]*node)

// NewMemory makes an empty disk of the given capacity in bytes.
func NewMemory(capacity int64) *Memory {
	return &Memory{root: newFolder(), capacity: capacity, locked: map[string]bool{}}
}

func newFolder() *node {
	return &node{dir: true, entries: map[string]*node{}, saved: map[string]*node{}}
}

func (n *node) apply(c change) {
	c(n.entries)
	n.pending = append(n.pending, c)
}

// find walks to a node; an empty path is the root.
func (m *Memory) find(op, name string) (*node, error) {
	n := m.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(name)), "/") {
		if part == "" || part == "." {
			continue
		}
		if n = n.entries[part]; n == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return n, nil
}

func (m *Memory) folder(op, name string) (*node, error) {
	n, err := m.find(op, name)
	if err == nil && !n.dir {
		err = &fs.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return n, err
}

// Open implements FS.
func (m *Memory) Open(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("open", name)
	if err != nil {
		return nil, err
	}
	return &memoryFile{disk: m, node: n}, nil
}

// Create implements FS.
func (m *Memory) Create(name string) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, err := m.folder("create", filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	base := filepath.Base(name)
	if old := parent.entries[base]; old != nil {
		old.data = nil
		return &memoryFile{disk: m, node: old}, nil
	}
	n := &node{}
	parent.apply(func(e map[string]*node) { e[base] = n })
	return &memoryFile{disk: m, node: n}, nil
}

// OpenInPlace implements FS.
func (m *Memory) OpenInPlace(name string, write bool) (InPlace, error) {
	f, err := m.Open(name)
	if write && errors.Is(err, fs.ErrNotExist) {
		f, err = m.Create(name)
	}
	if err != nil {
		return nil, err
	}
	return &memoryInPlace{f.(*memoryFile), name, write}, nil
}

// Mkdir implements FS.
func (m *Memory) Mkdir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	parent, err := m.folder("mkdir", filepath.Dir(name))
	if err != nil {
		return err
	}
	base := filepath.Base(name)
	if parent.entries[base] != nil {
		return &fs.PathError{Op: "mkdir", Path: name, Err: fs.ErrExist}
	}
	n := newFolder()
	parent.apply(func(e map[string]*node) { e[base] = n })
	return nil
}

// Rename implements FS.
func (m *Memory) Rename(from, to string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("rename", from)
	if err != nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("renaming %s to %s: both must be in one folder", from, to)
	}
	parent, err := m.folder("rename", filepath.Dir(from))
	if err != nil {
		return err
	}
	oldBase, newBase := filepath.Base(from), filepath.Base(to)
	if target := parent.entries[newBase]; target != nil && target.dir {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	parent.apply(func(e map[string]*node) {
		delete(e, oldBase)
		e[newBase] = n
	})
	return nil
}

// Remove implements FS.
func (m *Memory) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("remove", name)
	if err != nil {
		return err
	}
	if len(n.entries) > 0 {
		return &fs.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	parent, err := m.folder("remove", filepath.Dir(name))
	if err != nil {
		return err
	}
	base := filepath.Base(name)
	parent.apply(func(e map[string]*node) { delete(e, base) })
	return nil
}

// List implements FS.
func (m *Memory) List(dir string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.folder("list", dir)
	if err != nil {
		return nil, err
	}
	return slices.Sorted(maps.Keys(n.entries)), nil
}

// Stat implements FS.
func (m *Memory) Stat(name string) (Info, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find("stat", name)
	if err != nil {
		return Info{}, err
	}
	return Info{Size: int64(len(n.data)), Dir: n.dir}, nil
}

// SyncDir implements FS.
func (m *Memory) SyncDir(dir string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.folder("sync", dir)
	if err != nil {
		return err
	}
	n.saved, n.pending = maps.Clone(n.entries), nil
	return nil
}

// Lock implements FS. A disk after a power loss has no locks.
func (m *Memory) Lock(dir string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.folder("lock", dir); err != nil {
		return nil, err
	}
	dir = filepath.Clean(dir)
	if m.locked[dir] {
		return nil, &fs.PathError{Op: "lock", Path: dir, Err: ErrLocked}
	}
	m.locked[dir] = true
	return memoryLock{m, dir}, nil
}

type memoryLock struct {
	disk *Memory
	dir  string
}

func (l memoryLock) Close() error {
	l.disk.mu.Lock()
	defer l.disk.mu.Unlock()
	delete(l.disk.locked, l.dir)
	return nil
}

// Free implements FS.
func (m *Memory) Free(string) (int64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.capacity - m.root.size(), nil
}

func (n *node) size() int64 {
	total := int64(len(n.data))
	for _, e := range n.entries {
		total += e.size()
	}
	return total
}

// AfterPowerLoss returns a disk as it may be after a power loss at this moment: with
// everything that was synced, the first few of the later changes to each folder, and
// some sectors of the later bytes. This disk does not change, so many losses can be
// tried.
func (m *Memory) AfterPowerLoss(rng *rand.Rand) *Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return &Memory{root: m.root.survivor(rng), capacity: m.capacity, locked: map[string]bool{}}
}

func (n *node) survivor(rng *rand.Rand) *node {
	if !n.dir {
		data := torn(rng, n.durable, n.data)
		return &node{data: data, durable: slices.Clone(data)}
	}
	entries := maps.Clone(n.saved)
	for _, c := range n.pending[:rng.IntN(len(n.pending)+1)] {
		c(entries)
	}
	s := newFolder()
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		s.entries[name] = entries[name].survivor(rng)
	}
	s.saved = maps.Clone(s.entries)
	return s
}

// torn mixes the synced and the written content of a file sector by sector, with a
// length between both.
func torn(rng *rand.Rand, durable, written []byte) []byte {
	const sector = 512
	short, long := min(len(durable), len(written)), max(len(durable), len(written))
	out := make([]byte, short+rng.IntN(long-short+1))
	copy(out, durable)
	for at := 0; at < min(len(out), len(written)); at += sector {
		if rng.IntN(2) == 0 {
			copy(out[at:min(at+sector, len(out))], written[at:])
		}
	}
	return out
}

// memoryFile is an open file of a Memory disk.
type memoryFile struct {
	disk *Memory
	node *node
}

func (f *memoryFile) ReadAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return bytes.NewReader(f.node.data).ReadAt(p, off)
}

func (f *memoryFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if f.disk.root.size()+int64(len(p)) > f.disk.capacity {
		return 0, &fs.PathError{Op: "write", Path: "memory", Err: syscall.ENOSPC}
	}
	f.node.data = append(f.node.data, p...)
	return len(p), nil
}

func (f *memoryFile) WriteAt(p []byte, off int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if off < 0 || off+int64(len(p)) > int64(len(f.node.data)) {
		return 0, &fs.PathError{Op: "write", Path: "memory", Err: syscall.EINVAL}
	}
	f.node.data = slices.Clone(f.node.data) // the durable bytes may share its memory
	return copy(f.node.data[off:], p), nil
}

func (f *memoryFile) Sync() error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	f.node.durable = slices.Clone(f.node.data)
	return nil
}

func (f *memoryFile) Size() (int64, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return int64(len(f.node.data)), nil
}

func (f *memoryFile) Close() error { return nil }

// memoryInPlace is a file open for reading and writing anywhere.
type memoryInPlace struct {
	*memoryFile
	name  string
	write bool
}

func (f *memoryInPlace) ReadAt(p []byte, off int64) (int, error) {
	if err := aligned(f.name, p, off); err != nil {
		return 0, err
	}
	return f.memoryFile.ReadAt(p, off)
}

func (f *memoryInPlace) WriteAt(p []byte, off int64) (int, error) {
	if err := aligned(f.name, p, off); err != nil {
		return 0, err
	}
	if !f.write {
		return 0, &fs.PathError{Op: "write", Path: f.name, Err: syscall.EBADF}
	}
	if err := f.Reserve(off + int64(len(p))); err != nil {
		return 0, err
	}
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	return copy(f.node.data[off:], p), nil
}

// Modified implements InPlace: this disk does not know.
func (f *memoryInPlace) Modified() (int64, error) { return 0, nil }

func (f *memoryInPlace) Reserve(bytes int64) error {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	more := bytes - int64(len(f.node.data))
	if more <= 0 {
		return nil
	}
	if f.disk.root.size()+more > f.disk.capacity {
		return &fs.PathError{Op: "reserve", Path: f.name, Err: syscall.ENOSPC}
	}
	f.node.data = append(f.node.data, make([]byte, more)...)
	return nil
}
