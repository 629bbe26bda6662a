package app

import (
	"encoding/hex"
	"time"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/web"
)

// fileEntity is the table files as entities: name, path, rows (in the table when it was loaded), loaded (when), error (why what the
// file holds now is not in force; empty where it is) and hash (SHA-256 of the content in force).
type fileEntity struct{ files *tableFiles }

func (fileEntity) Type() string { return "file" }

func (fileEntity) Attributes() []string {
	return []string{"path", "rows", "loaded", "error", "hash"}
}

func (e fileEntity) List() []admin.Entity {
	list := []admin.Entity{}
	for _, f := range e.files.list() {
		x := admin.Entity{
			"name": f.name, "identity": "file/" + f.name, "path": f.path, "rows": uint64(f.rows),
			"loaded": "", "error": "", "hash": hex.EncodeToString(f.hash),
		}
		if !f.loaded.IsZero() {
			x["loaded"] = f.loaded.UTC().Format(time.RFC3339)
		}
		if f.err != nil {
			x["error"] = f.err.Error()
		}
		list = append(list, x)
	}
	return list
}

// metrics gives the files as the metrics page shows them.
func (t *tableFiles) metrics() []web.File {
	var list []web.File
	for _, f := range t.list() {
		list = append(list, web.File{Name: f.name, Good: f.err == nil, Refused: f.errors, Rows: f.rows, Loaded: f.loaded})
	}
	return list
}
