package weights

import (
	"fmt"
	"io"

	"spillway/executor"
)

// Copy gives the params of one executor's plan the values they have in another's.
// Both must have the same params in the same types; their homes may differ.
func Copy(to, from *executor.Executor) error {
	have := map[string]executor.Tensor{}
	for _, t := range from.Weights() {
		have[t.Param.Name] = t
	}
	for _, t := range to.Weights() {
		source, ok := have[t.Param.Name]
		if !ok || !source.Type.Equal(t.Type) {
			return fmt.Errorf("copying weights: param %s is %v in one plan and %v in the other", t.Param.Name, t.Type, source.Type)
		}
		if err := copyTensor(to, t, from, source); err != nil {
			return fmt.Errorf("copying weights: %w", err)
		}
	}
	return nil
}

// copyTensor streams a tensor: the two executors may give it in different chunks.
func copyTensor(to *executor.Executor, t executor.Tensor, from *executor.Executor, source executor.Tensor) error {
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.CloseWithError(from.Read(source, func(_ int64, chunk []byte) error {
			_, err := w.Write(chunk)
			return err
		}))
	}()
	defer func() {
		r.Close()
		<-done
	}()
	return to.Write(t, func(_ int64, chunk []byte) error {
		_, err := io.ReadFull(r, chunk)
		return err
	})
}
