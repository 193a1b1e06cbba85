package main

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	"spillway/device"
	"spillway/device/cpu"
	"spillway/device/cuda"
	"spillway/device/cuda/driver"
	"spillway/dtype"
	"spillway/internal/term"
	"spillway/machine"
	"spillway/probe"
	"spillway/units"
)

// card is a GPU that is open.
type gpuDevice interface {
	device.Device
	device.Meter
	GPUName() string                        // "NVIDIA H200"
	Address() (string, error)               // on the bus
	Memory() (free, total int64, err error) // of all of it, as the driver counts
	Footprint(card, host int64) int64       // as it will count with so much more in use
}

// openCard is a card with what is known of it.
type openGPU struct {
	gpuDevice
	described machine.Device
	rates     probe.Rates // measured now; zero where not
}

// cudaCards opens cards with libraries from the places that the environment names,
// and keeps compiled kernels in the cache folder.
func openCUDA(cache string) func(cuda.Options) (gpuDevice, error) {
	return func(o cuda.Options) (gpuDevice, error) {
		o.SearchPaths = libraryPaths(os.Getenv)
		if cache != "" {
			o.Cache = filepath.Join(cache, "kernels")
		}
		host, err := machine.System{}.Usable()
		if err != nil {
			return nil, err
		}
		o.Host = int64(host)
		return cuda.Open(o)
	}
}

// libraryPaths are the folders of CUDA's libraries that an environment names: of
// toolkits, of a Python environment, and of the loader.
func libraryPaths(getenv func(string) string) (paths []string) {
	for _, name := range []string{"CUDA_HOME", "CUDA_PATH", "VIRTUAL_ENV", "LD_LIBRARY_PATH"} {
		for _, dir := range filepath.SplitList(getenv(name)) {
			if dir != "" {
				paths = append(paths, dir)
			}
		}
	}
	return paths
}

// errNoCards is of a shell that opens none.
var errNoGPUs = errors.New("no GPUs are looked for")

// missing says whether there is no card, as opposed to one that does not work.
func missing(err error) bool {
	var library *driver.MissingError
	var answer *driver.Error
	var none *cuda.NoGPUError
	return errors.Is(err, errNoGPUs) || errors.As(err, &none) || errors.As(err, &library) || errors.As(err, &answer) && answer.Code == driver.NoDevice
}

// brief is what a missing card is about, without all places that were searched.
func brief(err error) string {
	var library *driver.MissingError
	if errors.As(err, &library) {
		return fmt.Sprintf("there is no %s (%s); %s", library.Names[0], library.What, library.How)
	}
	return err.Error()
}

// add opens a card.
func (r *rig) add(sh shell, o cuda.Options) error {
	if sh.openGPU == nil {
		return errNoGPUs
	}
	c, err := sh.openGPU(o)
	if err != nil {
		return err
	}
	r.on = append(r.on, c)
	known, err := sh.knownOf(c)
	for _, other := range r.gpus {
		if other.described.Name == known.Name { // another share of the same card
			known.Name = fmt.Sprintf("%s.%d", c.Info().Name, len(r.gpus))
		}
	}
	r.gpus = append(r.gpus, openGPU{gpuDevice: c, described: known})
	return err
}

// knownOf is what is known of a card: its sizes, and rates if they were measured once.
func (sh shell) knownOf(c gpuDevice) (machine.Device, error) {
	info := c.Info()
	_, total, err := c.Memory()
	if err != nil {
		return machine.Device{}, err
	}
	d := machine.Device{
		Name: info.Name, Kind: machine.GPU, Memory: units.Bytes(total), Usable: units.Bytes(info.Limit),
		Sources: machine.Sources{"memory": machine.Measured, "usable": machine.Measured},
	}
	listed, ok := machine.FindGPU(c.GPUName(), d.Memory)
	if d.Model = listed; !ok {
		d.Model = strings.NewReplacer(",", " ", ":", " ", "@", " ", "/", " ").Replace(c.GPUName())
	}
	rates, kept, err := probe.Load(sh.cache, rateKey(c))
	if err == nil && kept {
		d = rates.Device(d)
	}
	return d, err
}

// rateKey names what the rates of a card depend on.
func rateKey(c gpuDevice) string {
	host, _ := os.Hostname() // a card of another computer has another link; no name is a name too
	address, _ := c.Address()
	return strings.Join([]string{host, c.GPUName(), address, version}, "|")
}

// calibrate measures the cards and keeps their rates.
func (sh shell) calibrate(r *rig) error {
	line := term.NewLine(sh.err)
	defer line.Done()
	for i, c := range r.gpus {
		rates, err := sh.measureGPU(c, cuda.Options{Ordinal: i}, probe.GPUSizes, line.Print)
		if err != nil {
			return err
		}
		if err := probe.Store(sh.cache, rateKey(c.gpuDevice), rates); err != nil {
			return err
		}
		r.gpus[i].described = rates.Device(c.described)
		r.gpus[i].rates = rates
	}
	return nil
}

// measureCard measures an open card, and what changes when it is opened to round
// operands; tell is told what comes next.
func (sh shell) measureGPU(c openGPU, o cuda.Options, sizes probe.Sizes, tell func(string)) (probe.Rates, error) {
	start := time.Now()
	sizes.Report = func(what string) {
		tell(fmt.Sprintf("measuring %s, %.0f s: %s", c.Info().Name, time.Since(start).Seconds(), what))
	}
	var err error
	if sizes.Params, err = measuredParams(); err != nil {
		return probe.Rates{}, err
	}
	sizes.Host = cpu.Open(cpu.Options{})
	rates, err := probe.Measure(c.gpuDevice, sizes) // the bare card, which can also note and repeat
	if err = errors.Join(err, sizes.Host.Close()); err != nil {
		return rates, err
	}
	err = sh.tf32(o, sizes, &rates)
	return rates, err
}

// rounded is what machine.Compute calls f32 arithmetic that rounds its operands.
const tf32Name = "tf32"

// rounding is a card whose f32 arithmetic is the rounded one.
func asTF32(d machine.Device) machine.Device {
	d.Compute.F32 = max(d.Compute.F32, d.Compute.TF32)
	d.Sustained.F32 = d.Sustained.TF32
	if d.Tables = maps.Clone(d.Tables); d.Tables == nil {
		d.Tables = machine.Tables{}
	}
	d.Tables["f32"] = d.Tables[tf32Name]
	return d
}

// tf32 opens the card again, so that it rounds operands, and measures what that changes.
func (sh shell) tf32(o cuda.Options, s probe.Sizes, rates *probe.Rates) (err error) {
	o.TF32 = true
	c, err := sh.openGPU(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s.Report("the same in " + tf32Name)
	if rates.Compute.TF32, err = probe.Matmul(c, dtype.F32, s.Side); err != nil {
		return err
	}
	if rates.Tables[tf32Name], err = probe.Tables(c, dtype.F32, s.Grid); err != nil {
		return err
	}
	rates.Sustained.TF32, err = probe.Sustained(c, dtype.F32, s.Side, s.Sustained)
	return err
}
