package components

import (
	"cmp"
	"context"
	"crypto/subtle"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"

	"github.com/fingerpost/fingerpost/internal/components/proto"
)

// Credentials are what a component shows.
type Credentials struct {
	ID          proto.Component // without BrokerID; name and app cleaned
	Platform    string
	Pod         string
	Token       string
	Certificate *x509.Certificate // of the connection, where it was verified

	dialect string
}

// account is the name of the account that the component has to have: its group's, or that of a part of the platform.
func (c *Credentials) account() string {
	if c.ID.Type == typeKubeFox {
		return c.ID.Group()
	}
	return c.Platform + "-" + c.ID.Name
}

// Verifier judges a token. ErrPass says that it is of another kind, for the next verifier.
type Verifier interface {
	// Verify tells whose token it is: the name of the account.
	Verify(ctx context.Context, token string) (account string, err error)
}

// ErrPass says that a token is none of the verifier's: ask the next.
var ErrPass = errors.New("a token of another kind")

// authorize checks, in this order, the platform, that the component is known, and that what it shows is that of its account.
func (b *Broker) authorize(ctx context.Context, c *Credentials) error {
	o := b.now.Load().objects
	if c.Platform != o.Platform {
		return fmt.Errorf("platform %q", c.Platform)
	}
	if err := o.knows(c); err != nil {
		return err
	}
	unread := ""
	for id := range o.identities(c) {
		c.dialect = cmp.Or(id.Dialect, c.dialect)
		want, ok := id.Token.read()
		if !ok && (id.Token.file != "" || id.Token.env != "") {
			unread = "; the one of its identity cannot be read: " + cmp.Or(id.Token.file, id.Token.env)
		}
		if ok && c.Token != "" && subtle.ConstantTimeCompare([]byte(want), []byte(c.Token)) == 1 {
			return nil
		}
	}
	if c.Certificate != nil && c.Certificate.Subject.CommonName == c.account() {
		return nil
	}
	if c.Token == "" {
		return errors.New("no token, and no certificate of its account")
	}
	for _, v := range b.o.Verifiers {
		account, err := v.Verify(ctx, c.Token)
		switch {
		case errors.Is(err, ErrPass):
			continue
		case err != nil:
			return err
		case account != c.account():
			return fmt.Errorf("the token is that of %q, not of %q", account, c.account())
		}
		return nil
	}
	return errors.New("nobody vouches for the token" + unread)
}

// knows checks that there is such a component: in some deployment with the same type and the whole hash, or in the platform.
func (o *Objects) knows(c *Credentials) error {
	if c.ID.Type != typeKubeFox {
		for i := range o.Adapters {
			if o.Adapters[i].isOf(c) {
				return nil
			}
		}
		return errors.New("no such component of the platform")
	}
	for _, d := range o.Deployments {
		for name, x := range d.Components {
			if cleanName(d.App) == c.ID.App && cleanName(name) == c.ID.Name && x.Type == c.ID.Type && x.Hash == c.ID.Hash {
				return nil
			}
		}
	}
	return errors.New("no deployment has such a component")
}

// identities are what the file says of the component's tokens: it may have several, as each pod of an adapter its own.
func (o *Objects) identities(c *Credentials) iter.Seq[*Identity] {
	return func(yield func(*Identity) bool) {
		for _, list := range [][]Identity{o.Components, o.Adapters} {
			for i := range list {
				if x := &list[i]; x.isOf(c) && !yield(x) {
					return
				}
			}
		}
	}
}

// isOf tells whether the identity is that of a component.
func (x *Identity) isOf(c *Credentials) bool {
	return x.Type == c.ID.Type && cleanName(x.App) == c.ID.App && cleanName(x.Name) == c.ID.Name && x.Hash == c.ID.Hash && (x.Pod == "" || x.Pod == c.Pod)
}
