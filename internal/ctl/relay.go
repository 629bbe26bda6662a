package ctl

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"io"
	"net/url"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/fingerpost/fingerpost/messenger/relay"
)

// defaultRelayURL is where a router listens for HTTP when nothing else is said.
const defaultRelayURL = "ws://127.0.0.1:8080"

// relayAccess is how the verbs of the relay get in.
type relayAccess struct {
	domain, token, tokenFile string
}

func relayVerbs(r *run) *cobra.Command {
	var a relayAccess
	c := &cobra.Command{
		Use:   "relay",
		Short: "serve a topic of the relay by a command, and send requests",
		Long: `Relay speaks the relay protocol to the HTTP listener of a router: --url is ws://host:port, wss://…, http://… or https://… (default
` + defaultRelayURL + `; environment: ROUTECTL_RELAY_URL). The token comes from --token-file or from the environment, ROUTECTL_RELAY_TOKEN; one in
--token is seen by everybody who can list processes. Parts are JSON: text is a string, bytes that are no UTF-8 are {"base64":"…"}; other JSON that
comes is passed as its own text, with a line end.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error { return usage("relay: give serve or request") },
	}
	f := c.PersistentFlags()
	f.StringVar(&a.domain, "domain", "", "the `DOMAIN` of the topics (environment: ROUTECTL_RELAY_DOMAIN)")
	f.StringVar(&a.token, "token", "", "the `TOKEN` of a key (environment, which nobody else sees: ROUTECTL_RELAY_TOKEN)")
	f.StringVar(&a.tokenFile, "token-file", "", "a `FILE` whose first line is the token")
	c.AddCommand(relayServeCommand(r, &a), relayRequestCommand(r, &a))
	return c
}

// relayOptions are what flags and environment say of the relay.
func (r *run) relayOptions(c *cobra.Command, a *relayAccess) (o relay.Options, err error) {
	if r.file != "" {
		return o, usage("--file: this verb needs a router: use --url")
	}
	o.URL = cmp.Or(r.env.Getenv("ROUTECTL_RELAY_URL"), defaultRelayURL)
	if c.Flags().Changed("url") {
		o.URL = r.url
	}
	if !strings.Contains(o.URL, "://") {
		o.URL = "ws://" + o.URL
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Hostname() == "" {
		return o, usage("--url: not a URL: give ws://host:port or wss://host:port")
	}
	switch u.Scheme {
	case "ws", "http":
	case "wss", "https":
		if o.TLS, err = r.tls.config(u.Hostname()); err != nil {
			return o, err
		}
	default:
		return o, usage("--url: scheme %q: the relay is at ws, wss, http and https", u.Scheme)
	}
	if o.Domain = cmp.Or(a.domain, r.env.Getenv("ROUTECTL_RELAY_DOMAIN")); o.Domain == "" {
		return o, usage("no domain: give --domain, or ROUTECTL_RELAY_DOMAIN")
	}
	o.Token, err = a.secret(r.env.Getenv)
	return o, err
}

func (a *relayAccess) secret(getenv func(string) string) (string, error) {
	switch {
	case a.token != "" && a.tokenFile != "":
		return "", usage("--token and --token-file: give one of them")
	case a.token != "":
		return a.token, nil
	case a.tokenFile == "":
		if token := getenv("ROUTECTL_RELAY_TOKEN"); token != "" {
			return token, nil
		}
		return "", usage("no token: give --token-file FILE, or ROUTECTL_RELAY_TOKEN in the environment")
	}
	f, err := os.Open(a.tokenFile)
	if err != nil {
		return "", usage("--token-file: %v", err)
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 64<<10)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", usage("--token-file: %v", err)
	}
	if line = strings.TrimSpace(line); line == "" {
		return "", usage("--token-file %s: there is no token in its first line", a.tokenFile)
	}
	return line, nil
}

// relayConnect connects; the caller closes.
func relayConnect(ctx context.Context, o relay.Options) (*relay.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := relay.Connect(ctx, o)
	switch {
	case err == nil:
		return c, nil
	case errors.Is(err, context.Canceled):
		return nil, no("interrupted")
	case relay.CodeOf(err) == relay.Forbidden:
		return nil, no("%s: %v", o.URL, err)
	}
	return nil, unreachable("%s: %s: is a router with a relay there? --url says where", o.URL, oneLine(err.Error()))
}

// relayFailed puts what a relay said into an exit status.
func relayFailed(o relay.Options, err error) error {
	if f, ok := errors.AsType[*fault](err); ok {
		return f
	}
	e, ok := errors.AsType[*relay.Error](err)
	switch {
	case errors.Is(err, context.Canceled):
		return no("interrupted")
	case ok && e.Code == relay.Closed:
		return unreachable("%s: connection lost: %v", o.URL, err)
	}
	return no("%s: %v", o.URL, err)
}
