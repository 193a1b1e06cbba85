package main

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"spillway"
	"spillway/checkpoint"
	"spillway/dtype"
	"spillway/hf"
	"spillway/inference"
	"spillway/internal/vfs"
	"spillway/machine"
	"spillway/plan"
	"spillway/planner"
	"spillway/recipe"
	"spillway/rig"
	"spillway/trace"
	"spillway/units"
	"spillway/view"
)

func newPlan(sh shell) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan MODEL",
		Short: "where every byte would be stored, how long a step takes and what limits it",
		Long: `Makes the plan of a model on a machine and shows it: the strategy and why it was chosen,
the memory it uses of every tier and what is available, the forecast of one step with the
resource that limits it, and the alternatives. Nothing is loaded and nothing runs: any
model can be planned for any machine.

` + modelHelp + ` Of a training run or an adapter it is what generate takes: the best or newest
checkpoint, and the model of an adapter with it.

--machine describes hardware, owned or not:
` + machine.Grammar,
		Example: `  spillway plan llama-3-8b --task train --seq-len 4096 --machine gpu:24GiB@25GB/s,host:192GiB
  spillway plan qwen2.5-7b --task lora --batch-size 4 --machine rtx4090,host:64GiB
  spillway plan llama-3.2-1b --machine rtx3060 --compare --explain     every strategy, and what saves how much
  spillway plan llama-3-8b --task generate --context 32768 --streams 4 --machine rtx4090
  spillway plan llama-3-70b --task generate --quantization q4_k_m --machine rtx4090,host:64GiB
  spillway plan mistral-7b --machine 2xgpu:24GiB --device-map balanced --task infer
  spillway plan llama-3-8b --disk /mnt/nvme/run --seq-len 512      on this computer, from disk
  spillway plan ./my-model --save plan.json          on this computer; train --plan plan.json runs it`,
		Args: exactly(1, "MODEL"),
	}
	asJSON := jsonFlag(cmd)
	instructions := cmd.Flags().Bool("instructions", false, "list every instruction of the plan too: moves, runs, reduces, updates and frees")
	save := cmd.Flags().String("save", "", "write the whole plan to `FILE`, for train --plan")
	p := recipe.NewPlan()
	settings := p.PlanFlags()
	bind(cmd, settings)
	cmd.Flags().Lookup("method").Hidden = true // what train calls --task
	where, ask := siteFlags(cmd), adviceFlags(cmd)
	completeModels(cmd)
	complete(cmd, "machine", machine.GPUNames())
	given := func(name string) bool { return recipe.Given(settings, name) }
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		// A search makes hundreds of plans and holds few: with the usual limit of the collector a
		// fifth of the time goes to collecting. It is some hundred megabytes at most.
		defer debug.SetGCPercent(debug.SetGCPercent(400))
		switch {
		case ask.maxBatch && ask.maxSeq:
			return usageErrorf("--max-batch-size and --max-seq-len: fix one to find the other")
		case ask.maxBatch && given("batch-size"):
			return usageErrorf("--batch-size has no effect: --max-batch-size looks for it; give one of them")
		case ask.maxSeq && given("seq-len"):
			return usageErrorf("--seq-len has no effect: --max-seq-len looks for it; give one of them")
		case *instructions && *asJSON:
			return usageErrorf("--instructions is a text, and --json one object: --save FILE writes the whole plan as JSON")
		}
		if p.Task == spillway.Generate {
			for _, f := range []struct {
				given bool
				name  string
			}{{ask.maxBatch, "max-batch-size"}, {ask.maxSeq, "max-seq-len"}, {ask.explain, "explain"}} {
				if f.given {
					return usageErrorf("--%s has no effect: it is about batches, and --task generate has none; leave it out", f.name)
				}
			}
		}
		if err := p.CheckEffects(given, "task"); err != nil {
			return err
		}
		watch := newPlanning(cmd.Context(), sh.err)
		r, err := makePlan(sh, args[0], p, where, ask, given, watch)
		if err = watch.done(err); err != nil {
			return err
		}
		if *save != "" && r.Fits {
			if err := savePlan(*save, r.plan); err != nil {
				return err
			}
		}
		if *asJSON {
			err = writeJSON(sh.out, r)
		} else {
			err = r.write(sh.out)
		}
		if err == nil && *instructions && r.Fits {
			err = r.plan.Text(sh.out)
		}
		if err == nil && !r.Fits {
			err = errReported
		}
		return err
	}
	return cmd
}

// modelHelp explains the MODEL argument.
const modelHelp = `MODEL is a model folder as Hugging Face has them, or the name of a preset such as
llama-3-8b, for which no files are needed. A folder is preferred to a preset of the same
name.`

// planned is a model to plan with.
type planned struct {
	*spillway.Model
	run   *inference.Model // that it is of, with the adapters of the run; nil of a model that is none
	said  []string         // of what was taken
	close func() error
}

// openPlanned opens a model, or what a run or an adapter is used as.
func openPlanned(arg string, p *recipe.Plan, given func(string) bool) (*planned, error) {
	if path, _ := checkpoint.Choose(arg); path == arg && !hf.IsAdapter(arg) {
		m, err := spillway.Open(arg)
		if err != nil {
			return nil, err
		}
		return &planned{Model: m, close: m.Close}, nil
	}
	w := &planned{}
	run, err := inference.Open(inference.Settings{Model: arg, Notice: func(text string) { w.said = append(w.said, text) }})
	if err != nil {
		return nil, err
	}
	w.Model, w.run, w.close = run.Model, run, run.Close
	switch adapters := run.Subject().Adapters; {
	case len(adapters) == 0:
	case p.Task.Trains():
		w.said = append(w.said, fmt.Sprintf("planned is training of %s, without the adapter", run.Path))
	case given("quantization"):
		return nil, errors.Join(usageErrorf("--quantization has no effect on %s: next to its adapter weights are held as it was trained; name %s itself", arg, run.Path), run.Close())
	}
	return w, nil
}

// makePlan plans, and describes the outcome whether or not it fits.
func makePlan(sh shell, arg string, p *recipe.Plan, where *siteChoice, ask *adviceOptions, given func(string) bool, watch *planning) (*planReport, error) {
	from, err := openPlanned(arg, p, given)
	if err != nil {
		return nil, err
	}
	defer from.close() // opened for reading
	m := from.Model
	if p.Mixture != "" {
		if m, err = m.AsGGUF(p.Mixture); err != nil {
			return nil, err
		}
	}
	if where.machine == "" {
		if err := p.DeepSpeedDisk(); err != nil {
			return nil, err
		}
	}
	at, device, err := where.open(sh, p.Disk)
	if err != nil {
		return nil, err
	}
	defer at.Close() // nothing is allocated on it
	devices := len(at.Devices)
	if devices == 0 {
		site, err := planner.SiteOf(at.Machine, device.Name, dtype.F32)
		if err != nil {
			return nil, err
		}
		devices = site.Devices
	}
	_, notices, err := p.ApplyDeepSpeed(max(devices, 1), given)
	if err != nil {
		return nil, err
	}
	o := p.Complete(device)
	if from.run != nil && !o.Task.Trains() {
		from.run.AddAdapters(&o)
	}
	if o.Task == spillway.Generate && !given("precision") && (m.Folder != nil || device.Kind == machine.CPU && p.Mixture == "") { // as generate computes
		o.Precision = inference.Precision(m)
	}
	at.Machine = p.Within(at.Machine)
	o.Machine, o.On = at.Machine, at.Devices // a plan for this computer can be run on it
	o.Watch = watch.tries
	job, largest, err := ask.planned(m, p, o)
	var misfit *planner.FitError
	if err != nil && !errors.As(err, &misfit) {
		return nil, err
	}
	if misfit != nil {
		watch.what = "looking for what would fit"
		if ways := p.WaysOut(m, o, misfit, "task", where.machine); len(ways) > 0 {
			misfit.Options = ways
		} else if _, err := m.Plan(o); !errors.As(err, &misfit) {
			return nil, err
		}
		if job, err = m.Standard(o); err != nil {
			return nil, err
		}
	}
	r := describePlan(job, misfit)
	if r.advice, err = ask.advise(m, job.Options); err != nil {
		return nil, err
	}
	if misfit == nil {
		if err := r.forecast(job, ask); err != nil {
			return nil, err
		}
		if r.SumPrice, err = canonicalPrice(m, p, o, ask, job); err != nil {
			return nil, err
		}
	}
	r.Largest, r.Notices = largest, slices.Concat(from.said, notices, r.Notices)
	r.Goal, r.Machine = describeGoal(job.Options), machineReport{at.Machine, at.Machine.String(), device.Name}
	r.deviceReason = at.Reason
	if text := apartFromHost(at.Machine, device); text != "" && (!r.Fits || r.Forecast.PeakBytes[plan.OnHost] > r.Forecast.PeakBytes[plan.OnDevice]/16) {
		r.Notices = append(r.Notices, text)
	}
	return r, nil
}

// apartFromHost says how a computer without a GPU is described whose memory is all there is; "" where the device is none, or shares
// the host's memory already.
func apartFromHost(m machine.Machine, d machine.Device) string {
	if d.Kind != machine.CPU || d.Shared {
		return ""
	}
	size := plainSize(d.Memory)
	return fmt.Sprintf("cpu:%s is memory next to the host's %v, as a limit on what computes; a computer that has %v in all is cpu:%s@shared,host:%s", size, m.Host.Memory, d.Memory, size, size)
}

// plainSize is a size as a machine is described with.
func plainSize(n units.Bytes) string {
	if n%units.GiB == 0 {
		return fmt.Sprintf("%dGiB", n/units.GiB)
	}
	return fmt.Sprintf("%dMiB", n/units.MiB)
}

// forecast adds what is known of a plan that fits, and writes the files that were asked for.
func (r *planReport) forecast(job *spillway.Run, ask *adviceOptions) (err error) {
	if r.Generation, err = job.ForecastGeneration(); err != nil {
		return err
	}
	if r.Compressed, err = planCompressed(job); err != nil {
		return err
	}
	return errors.Join(saveTimeline(ask.timeline, job), saveMemory(ask.memorySnapshot, job.Plan))
}

// canonicalPrice plans the same without canonical sums, and says how much longer a step takes
// with them; nil where they are not asked for.
func canonicalPrice(m *spillway.Model, p *recipe.Plan, o spillway.Options, ask *adviceOptions, job *spillway.Run) (*float64, error) {
	if !o.CanonicalSums {
		return nil, nil
	}
	o.CanonicalSums = false
	plain, _, err := ask.planned(m, p, o)
	if err != nil {
		return nil, err
	}
	price := job.Plan.Forecast.StepSeconds/plain.Plan.Forecast.StepSeconds - 1
	return &price, nil
}

// saveMemory writes the memory of a step to a file, as a snapshot or as a picture; "" is none.
func saveMemory(path string, p *plan.Plan) error {
	if path == "" {
		return nil
	}
	err := vfs.Replace(vfs.OS, path, func(w io.Writer) error {
		if ending := filepath.Ext(path); ending == ".svg" || ending == ".png" {
			return view.WritePicture(w, ending, view.MemoryOf(p), view.Light)
		}
		return view.WriteMemorySnapshot(w, p)
	})
	if err != nil {
		return fmt.Errorf("writing the memory: %w", err)
	}
	return nil
}

// saveTimeline writes when each instruction of a step will run, by the forecast, to a file;
// "" is none.
func saveTimeline(path string, job *spillway.Run) error {
	if path == "" {
		return nil
	}
	events, err := job.Timeline()
	if err != nil {
		return err
	}
	f, err := trace.CreateChrome(path)
	if err != nil {
		return err
	}
	f.Write(1, events)
	return f.Close()
}

// siteChoice is where the plan is to run.
type siteChoice struct{ machine, device string }

func siteFlags(cmd *cobra.Command) *siteChoice {
	s := &siteChoice{}
	cmd.Flags().StringVar(&s.machine, "machine", "", "plan for the machine that `DESC` describes, as above (default: this computer)")
	cmd.Flags().StringVar(&s.device, "device", "", recipe.DeviceHelp+"\nwith --machine: one of its devices, such as gpu0 or gpu0,gpu2 (default: its first,\nand all that equal it)")
	return s
}

// open gives the machine that is described, with no device open, or this computer with its
// devices and the disk of a folder, and the device to plan for. The caller closes the rig.
func (s *siteChoice) open(sh shell, disk string) (*rig.Rig, machine.Device, error) {
	var none machine.Device
	if s.machine == "" {
		here, err := sh.open(s.device, rig.Options{Disk: vfs.ExistingParent(vfs.OS, disk)})
		if err != nil {
			return nil, none, err
		}
		return here, here.Machine.Devices[0], nil
	}
	if disk != "" {
		return nil, none, usageErrorf("--disk is a folder of this computer; describe another machine's disk in --machine, such as disk:2TiB")
	}
	m, err := machine.Parse(s.machine)
	if err != nil {
		return nil, none, usageError{err}
	}
	if s.device == "" {
		return &rig.Rig{Machine: m}, m.Devices[0], nil
	}
	if m, err = m.Only(strings.Split(s.device, ",")); err != nil {
		return nil, none, usageErrorf("--device %s: %w", s.device, err)
	}
	return &rig.Rig{Machine: m}, m.Devices[0], nil
}

// savePlan writes a plan as JSON; whoever reads it verifies it.
func savePlan(path string, p *plan.Plan) error {
	if err := vfs.Replace(vfs.OS, path, p.Write); err != nil {
		return fmt.Errorf("saving the plan: %w", err)
	}
	return nil
}
