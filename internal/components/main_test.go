package components

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/fingerpost/fingerpost/internal/house/leaks"
)

func TestMain(m *testing.M) {
	leaks.Main(m, goleak.IgnoreTopFunction("net/http.(*persistConn).readLoop"), goleak.IgnoreTopFunction("net/http.(*persistConn).writeLoop"))
}
