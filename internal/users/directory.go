package users

import (
	"strings"

	"github.com/fingerpost/fingerpost/internal/admin"
	"github.com/fingerpost/fingerpost/internal/amqp"
)

// Directory is a users file made ready to be asked. It is not changed once it is made.
type Directory struct {
	logins   *amqp.Logins
	accounts map[string]*admin.Account
}

// Directory makes the file ready.
func (f *File) Directory() (*Directory, error) {
	d := &Directory{accounts: map[string]*admin.Account{}}
	verifiers := map[string][]amqp.Verifier{}
	lists := map[string]*admin.Grants{} // users with the same list share it
	grants := func(patterns []string) (*admin.Grants, error) {
		if patterns == nil {
			return nil, nil
		}
		key := strings.Join(patterns, "\n")
		g, ok := lists[key]
		if !ok {
			var err error
			if g, err = admin.NewGrants(patterns); err != nil {
				return nil, err
			}
			lists[key] = g
		}
		return g, nil
	}
	for _, u := range f.Users {
		a := &admin.Account{Name: u.Name, Role: u.Role}
		var err error
		if a.Send, err = grants(u.Send); err != nil {
			return nil, err
		}
		if a.Receive, err = grants(u.Receive); err != nil {
			return nil, err
		}
		d.accounts[u.Name] = a
		verifiers[u.Name] = u.Verifiers
	}
	d.logins = amqp.NewLogins(f.Secret, verifiers)
	return d, nil
}

// Account gives what a user may do, nil where there is no such user.
func (d *Directory) Account(name string) *admin.Account { return d.accounts[name] }

// Logins check passwords.
func (d *Directory) Logins() *amqp.Logins { return d.logins }

// Len is how many users there are.
func (d *Directory) Len() int { return len(d.accounts) }
