// Package tube has the connections of a test go through something that can be cut. Read first: Tube.
package tube
