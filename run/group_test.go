package run_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"spillway"
	"spillway/data"
	"spillway/device"
	"spillway/device/cpu"
	"spillway/internal/runtest"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner/strategy"
	"spillway/rig"
	"spillway/train"
)

// groupChildJob in the environment makes this binary a process that plans a training run
// that takes half a gigabyte, says what the whole process will take, and trains: the
// config of the model.
const groupChildJob = "SPILLWAY_TEST_GROUP_TRAINING"

// groupChild requires its plan: one that was not would be made smaller.
func groupChild(config string) error {
	m, err := spillway.Open(config)
	if err != nil {
		return err
	}
	here, err := machine.Parse("cpu:1GiB,host:4GiB")
	if err != nil {
		return err
	}
	dev := cpu.Open(cpu.Options{})
	job, err := m.Plan(spillway.Options{Task: spillway.Train, MicroBatchSize: 1, Seq: 12, Packed: true, Machine: here, On: []device.Device{dev},
		Choose: strategy.Uniform(false, true, strategy.SaveAll, 0)})
	if err != nil {
		return err
	}
	own, err := anonymous()
	if err != nil {
		return err
	}
	fmt.Println("predicted", own+int64(rig.ProgramOverhead)+job.Plan.Peak()[plan.OnDevice]+job.Plan.Peak()[plan.OnHost])
	l, err := data.NewLoader(runtest.Documents(40, 61), data.Config{Length: 12, Seed: 5})
	if err != nil {
		return err
	}
	_, err = train.Run(context.Background(), job, train.NewTokens(l), train.Config{Iterations: 3})
	if full := new(device.OutOfMemoryError); errors.As(err, &full) {
		fmt.Println("refused", full.Limit)
		err = nil
	}
	return errors.Join(err, dev.Close(), m.Close())
}

// anonymous is the memory of this process that is no file's: what its control group
// counts for sure, pages of the binary may be another's.
func anonymous() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "RssAnon:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("the system does not count anonymous memory")
}

// newGroup makes a control group below the one of this process; the test is skipped
// where that is not allowed.
func newGroup(t *testing.T) (dir, limit string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("control groups are Linux's")
	}
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Skip("no control groups: ", err)
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		base, limit := "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		switch {
		case parts[0] == "0":
			base, limit = "/sys/fs/cgroup", "memory.max"
		case !strings.Contains(parts[1], "memory"):
			continue
		}
		dir := filepath.Join(base, parts[2], fmt.Sprintf("spillway-test-%d", os.Getpid()))
		if os.Mkdir(dir, 0o755) != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Error(err)
			}
		})
		if _, err := os.Stat(filepath.Join(dir, limit)); err == nil {
			return dir, filepath.Join(dir, limit)
		}
	}
	t.Skip("no control group with a memory limit can be made here; it takes rights over the group this process is in")
	return "", ""
}

// inGroup runs the child in a control group with a limit and gives what it said.
func inGroup(t *testing.T, dir, limitFile, config string, limit int64) (said map[string]int64, err error) {
	t.Helper()
	if err := os.WriteFile(limitFile, []byte(strconv.FormatInt(limit, 10)), 0); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, dir, os.Args[0])
	cmd.Env = append(os.Environ(), groupChildJob+"="+config)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	said = map[string]int64{}
	for line := range strings.Lines(string(out)) {
		name, number, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, bad := strconv.ParseInt(number, 10, 64)
		if bad != nil {
			t.Fatal(bad)
		}
		said[name] = n
	}
	return said, err
}

// In a control group with the predicted memory and 1% more a training finishes, with 1%
// less it refuses to start; it is never killed.
func TestControlGroup(t *testing.T) {
	dir, limitFile := newGroup(t)
	config := configFile(t, `{"model_type":"llama","vocab_size":120000,"hidden_size":256,"num_hidden_layers":2,"num_attention_heads":4,
"num_key_value_heads":2,"intermediate_size":512,"rms_norm_eps":1e-5,"tie_word_embeddings":true,"max_position_embeddings":64}`)
	said, err := inGroup(t, dir, limitFile, config, 4<<30)
	if err != nil {
		t.Fatal(err)
	}
	predicted := said["predicted"]
	for _, percent := range []int64{101, 99} {
		said, err := inGroup(t, dir, limitFile, config, predicted*percent/100)
		if err != nil {
			t.Fatalf("with %d%% of %d bytes: %v", percent, predicted, err)
		}
		if _, refused := said["refused"]; refused != (percent < 100) {
			t.Errorf("with %d%% of %d bytes: refused %t, %v", percent, predicted, refused, said)
		}
	}
	t.Logf("predicted %d bytes", predicted)
}
