// Package silent closes what a client opened to an HTTP server and sent nothing on, when the server ends. Read first: Close.
package silent
