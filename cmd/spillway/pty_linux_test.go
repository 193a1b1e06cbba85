package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is a program in a terminal that the test holds the other end of.
type terminal struct {
	t       *testing.T
	program *exec.Cmd
	keys    *os.File // what is typed, and the screen
	mu      sync.Mutex
	screen  strings.Builder
	seen    int // bytes of the screen that were waited for
}

// inTerminal starts a command line in a terminal of its own.
func inTerminal(t *testing.T, args ...string) *terminal {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skip("no terminals here: ", err)
	}
	n, err := unix.IoctlGetInt(int(keys.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(keys.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	side, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer side.Close()
	x := &terminal{t: t, program: program(t, args...), keys: keys}
	x.resize(80)
	x.program.Stdin, x.program.Stdout, x.program.Stderr = side, side, side
	x.program.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := x.program.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		raw := make([]byte, 4096)
		for {
			n, err := keys.Read(raw)
			x.mu.Lock()
			x.screen.Write(raw[:n])
			x.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { x.program.Process.Kill(); keys.Close() })
	return x
}

func (x *terminal) resize(columns uint16) {
	if err := unix.IoctlSetWinsize(int(x.keys.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		x.t.Fatal(err)
	}
}

func (x *terminal) write(keys string) {
	x.t.Helper()
	if _, err := x.keys.WriteString(keys); err != nil {
		x.t.Fatal(err)
	}
}

// wait waits until a text appears on the screen, after those that were waited for before.
func (x *terminal) wait(text string) {
	x.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		x.mu.Lock()
		now := x.screen.String()
		x.mu.Unlock()
		if at := strings.Index(now[x.seen:], text); at >= 0 {
			x.seen += at + len(text)
			return
		}
	}
	x.t.Fatalf("%q does not appear: %.300q", text, x.screen.String()[x.seen:])
}

// more waits until there are so many more bytes on the screen.
func (x *terminal) more(bytes int) {
	x.t.Helper()
	for end := time.Now().Add(5 * time.Minute); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		x.mu.Lock()
		now := x.screen.Len()
		x.mu.Unlock()
		if now >= x.seen+bytes {
			return
		}
	}
	x.t.Fatalf("nothing more appears: %.300q", x.screen.String()[x.seen:])
}

// waiting is the prompt, with which the program waits for a line.
const waiting = "\x1b[?2004h\r\x1b[J> "

// A conversation in a terminal: lines are edited, of any length, wide and broken; Ctrl-C ends an
// answer or drops a line and never the program, a window may change its size, Ctrl-D ends, and
// the terminal is as it was.
func TestChatInATerminal(t *testing.T) {
	sandbox(t)
	config := `{"model_type":"llama","vocab_size":256,"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":4,
"intermediate_size":128,"rms_norm_eps":1e-5,"tie_word_embeddings":false,"max_position_embeddings":20000}`
	if err := os.WriteFile("slow.json", []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	works(t, "init", "slow.json", "--out", "slow")
	x := inTerminal(t, "chat", "./slow", "--tokenizer", "bytes", "--chat-template", filepath.Join("model", "chat_template.jinja"), "--context", "20000", "--device", "cpu")
	state, err := unix.IoctlGetTermios(int(x.keys.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	x.wait("/help shows commands")
	x.wait(waiting)
	x.write("hello\r") // an answer of up to 20000 tokens
	x.wait("\x1b[?2004l")
	x.more(20) // some of it is there
	x.write("\x03")
	x.wait(waiting)
	x.write("/set max-new-tokens 3\r")
	x.wait(waiting)
	x.resize(30)
	x.write("größe 漢字x\x7f\x1b[D\x1b[D" + "é" + "\x05 😀\xff\r")
	x.wait("(cut after 3 tokens; /set max-new-tokens 0 sets no limit)")
	x.wait(waiting)
	x.write(strings.Repeat("x", 4500) + "\r") // more than a terminal takes as a line by itself
	x.wait(waiting)
	x.resize(120)
	x.write("\"\"\"\rone\rtwo\r\"\"\"\r")
	x.wait(waiting)
	x.write("\x1b[200~pasted\nlines\x1b[201~\r")
	x.wait(waiting)
	x.write("dropped\x03")
	x.wait("Ctrl-D or /exit ends")
	x.wait(waiting)
	x.write("/save talk.json\r")
	x.wait(waiting)
	x.write("\x04")
	if err := x.program.Wait(); err != nil {
		t.Error("Ctrl-D:", err)
	}
	if now, err := unix.IoctlGetTermios(int(x.keys.Fd()), unix.TCGETS); err != nil || now.Lflag != state.Lflag || now.Iflag != state.Iflag {
		t.Errorf("the terminal is another one afterwards: %v", err)
	}
	raw, err := os.ReadFile("talk.json")
	if err != nil {
		t.Fatal(err)
	}
	var talk struct {
		Messages []struct{ Role, Content string }
	}
	if err := json.Unmarshal(raw, &talk); err != nil {
		t.Fatal(err)
	}
	var said []string
	for _, m := range talk.Messages {
		if m.Role == "user" {
			said = append(said, m.Content)
		}
	}
	want := []string{"hello", "größe é漢字 😀�", strings.Repeat("x", 4500), "one\ntwo", "pasted\nlines"}
	if len(said) != len(want) {
		t.Fatalf("%d questions of %d: %.200q", len(said), len(want), said)
	}
	for i := range want {
		if said[i] != want[i] {
			t.Errorf("question %d is %.100q, want %.100q", i, said[i], want[i])
		}
	}
}
