package admin

// Version is the version of the product, of all its programs.
const Version = "0.1.0"
