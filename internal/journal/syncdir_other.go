//go:build !unix

package journal

// syncDir does nothing: these systems do not sync a directory, they keep the order of its changes themselves.
func syncDir(string) error { return nil }
