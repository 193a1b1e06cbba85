package hub

import (
	"context"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"spillway/internal/vfs"
)

// partial ends the name of a blob that is not whole.
const partial = ".incomplete"

var sumPattern = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// check refuses what the hub says of a file where it cannot be true, or would be stored
// outside of the model's folder.
func (f file) check() error {
	local := filepath.FromSlash(f.Name)
	switch {
	case !filepath.IsLocal(local) || strings.ContainsAny(f.Name, "\\\x00") || filepath.Clean(local) != local:
		return fmt.Errorf("the hub names a file %.80q, which is not a path inside a folder", f.Name)
	case f.Size < 0 || f.LFS != nil && f.LFS.Size != f.Size:
		return fmt.Errorf("the hub gives %s a size of %d bytes", f.Name, f.Size)
	case !sumPattern.MatchString(f.sum()):
		return fmt.Errorf("the hub gives %s the checksum %.80q, which is none", f.Name, f.sum())
	}
	return nil
}

// hash is that of the checksum, with what comes before the contents.
func (f file) hash() hash.Hash {
	if len(f.sum()) == 64 {
		return sha256.New()
	}
	h := sha1.New() // as git names blobs
	fmt.Fprintf(h, "blob %d\x00", f.Size)
	return h
}

// fetch brings one file into the cache and links it into the snapshot. Whoever else fetches the
// same is waited for.
func (p *puller) fetch(ctx context.Context, f file, snapshot string) error {
	blob := filepath.Join(p.dir, "blobs", f.sum())
	link := filepath.Join(snapshot, filepath.FromSlash(f.Name))
	if f.isWhole(blob) && isLink(blob, link) {
		p.add(f.Size, 0)
		return nil
	}
	release, err := claim(ctx, blob)
	if err != nil {
		return err
	}
	defer release()
	if f.isWhole(blob) { // it was there, or another process has fetched it meanwhile
		p.add(f.Size, 0)
	} else {
		so := far{}
		if err := p.repeatedly(ctx, func() (bool, error) { return p.continued(ctx, f, blob, &so) }); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		return err
	}
	return linkTo(blob, link)
}

// isWhole says whether a blob is there.
func (f file) isWhole(blob string) bool {
	info, err := os.Stat(blob)
	return err == nil && info.Size() == f.Size
}

// far is how far a file has come.
type far struct {
	counted int64 // bytes that progress knows of
	most    int64 // that there ever were: fetching the same again is no progress
}

// continued goes on with what there is of a file, once.
func (p *puller) continued(ctx context.Context, f file, blob string, so *far) (progress bool, err error) {
	out, err := os.OpenFile(blob+partial, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return false, err
	}
	defer out.Close()
	sum := f.hash()
	have, err := io.Copy(sum, io.LimitReader(out, f.Size+1))
	if err != nil {
		return false, err
	}
	count := func(now, fetched int64) { p.add(now-so.counted, fetched); so.counted = now }
	if have > f.Size {
		return false, restart(out, fmt.Errorf("there are more than its %d bytes already", f.Size))
	}
	count(have, 0)
	began := have
	so.most = max(so.most, have)
	if have < f.Size {
		r, err := p.get(ctx, p.options.Endpoint+"/"+p.model.ID+"/resolve/"+p.commit+"/"+escaped(f.Name), have)
		if errors.Is(err, errRange) {
			return false, restart(out, err)
		}
		if err != nil {
			return false, err
		}
		defer r.Body.Close()
		if have > 0 && r.StatusCode == http.StatusOK { // it sends all of it
			if err := errors.Join(out.Truncate(0), seek(out, 0)); err != nil {
				return false, err
			}
			sum, have = f.hash(), 0
			count(0, 0)
		}
		if have, err = p.receive(r.Body, f, out, sum, have, count); err != nil {
			progress, so.most = have > so.most, max(so.most, have)
			return progress, err
		}
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != f.sum() {
		if began > 0 { // what was there may be to blame
			return false, restart(out, passing{fmt.Errorf("its checksum is %s, the hub says %s", got, f.sum())})
		}
		return false, restart(out, fmt.Errorf("its checksum is %s, the hub says %s: it was damaged or has changed; it is removed, pull again", got, f.sum()))
	}
	if err := errors.Join(out.Sync(), out.Close()); err != nil {
		return false, notStored(err)
	}
	return true, errors.Join(os.Rename(blob+partial, blob), vfs.OS.SyncDir(filepath.Dir(blob)))
}

// receive stores what comes of a file after the bytes that there are, counts it and adds it to the sum, and
// gives how many bytes there are then. After a connection that ended they are the file's, and may be gone on with.
func (p *puller) receive(body io.Reader, f file, out *os.File, sum io.Writer, have int64, count func(now, fetched int64)) (int64, error) {
	buffer, store := make([]byte, 1<<20), p.options.store
	if store == nil {
		store = (*os.File).Write
	}
	for {
		n, err := body.Read(buffer)
		if n > 0 {
			if have+int64(n) > f.Size {
				return 0, restart(out, fmt.Errorf("the hub sends more than the %d bytes it said", f.Size))
			}
			if _, err := store(out, buffer[:n]); err != nil {
				return 0, notStored(err)
			}
			sum.Write(buffer[:n])
			have += int64(n)
			count(have, int64(n))
		}
		if err == io.EOF && have == f.Size {
			return have, nil
		}
		if err != nil {
			return have, passing{fmt.Errorf("the connection ended at %d of %d bytes: %w", have, f.Size, err)}
		}
	}
}

// notStored is an error of the disk.
func notStored(err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("storing it: %w; make room, or set HF_HOME to another disk, then pull again: what was fetched is kept", err)
	}
	return fmt.Errorf("storing it: %w", err)
}

// restart throws away what was fetched, since it is not part of the file.
func restart(out *os.File, why error) error { return errors.Join(why, out.Truncate(0)) }

func seek(f *os.File, to int64) error {
	_, err := f.Seek(to, io.SeekStart)
	return err
}

// add counts bytes that are there, and those that came over the network.
func (p *puller) add(have, fetched int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.have += have
	p.fetched += fetched
	if p.options.Progress != nil {
		p.options.Progress(p.have, p.total)
	}
}

// escaped is the path of a file in an address.
func escaped(name string) string {
	parts := strings.Split(name, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return strings.Join(parts, "/")
}

// isLink says whether a name in a snapshot is that of a blob.
func isLink(blob, link string) bool {
	relative, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return false
	}
	old, err := os.Readlink(link)
	return err == nil && old == relative
}

// linkTo gives a blob a name in a snapshot: a relative link, or a copy where the disk has no
// links. Nobody else names the same blob at the same time.
func linkTo(blob, link string) error {
	if isLink(blob, link) {
		return nil
	}
	relative, err := filepath.Rel(filepath.Dir(link), blob)
	if err != nil {
		return err
	}
	temporary := link + partial
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Symlink(relative, temporary); err != nil {
		if err := os.Link(blob, temporary); err != nil {
			return fmt.Errorf("naming it in the snapshot: %w", err)
		}
	}
	return os.Rename(temporary, link)
}
