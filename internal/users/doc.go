// Package users is the file of those who may log in: their verifiers, roles and allow lists. Read first: Parse in file.go.
package users
