package checkpoint

import (
	"path/filepath"

	"spillway/hf"
	"spillway/internal/vfs"
)

// Newest returns the newest checkpoint of a run's folder. For any other folder, such as
// a checkpoint or a model, it returns the folder itself.
func Newest(dir string) string {
	for _, name := range []string{hf.ConfigName, hf.AdapterConfigName} {
		if there, err := vfs.Exists(vfs.OS, filepath.Join(dir, name)); err == nil && there {
			return dir
		}
	}
	found, err := Dir{Path: dir}.List()
	if err != nil || len(found) == 0 {
		return dir
	}
	return found[0].Path
}
