package bench

import (
	"spillway/device"
	"spillway/device/cpu"
)

// fakeDriver opens a device that computes on the CPU and says that it is a GPU.
type fakeDriver struct{}

func init() { device.Register("fake", fakeDriver{}) }

func (fakeDriver) Open(string, device.Options) (device.Device, error) {
	return fakeGPU{cpu.Open(cpu.Options{Limit: 2 << 30})}, nil
}

type fakeGPU struct{ *cpu.Device }

const (
	fakeTotal   = 24564 << 20
	fakeRuntime = 500 << 20
)

func (fakeGPU) Model() string            { return "NVIDIA GeForce RTX 4090" }
func (fakeGPU) Address() (string, error) { return "00000000:00:00.0", nil }

func (g fakeGPU) Memory() (free, total int64, err error) {
	now, _ := g.Allocated()
	return fakeTotal - fakeRuntime - now, fakeTotal, nil
}

func (g fakeGPU) Used() (int64, error) {
	now, _ := g.Allocated()
	return fakeRuntime + now, nil
}

func (g fakeGPU) Footprint(onDevice, _ int64) int64 {
	now, _ := g.Allocated()
	return fakeRuntime + now + onDevice
}

// Info has the name of a GPU.
func (g fakeGPU) Info() device.Info {
	i := g.Device.Info()
	i.Name, i.OnHost = "fake:0", false
	return i
}
