package components

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"
)

// TokenReviewOptions say where the Kubernetes API is.
type TokenReviewOptions struct {
	URL       string // https://HOST:PORT, or "in-cluster"
	CA        string // file of who signs its certificate; empty: the system's authorities, in a cluster the cluster's
	TokenFile string // our own token, read for each question; empty: none, in a cluster that of the pod
	Namespace string // of the accounts of components; empty: any
}

// TokenReview has the Kubernetes API judge tokens.
type TokenReview struct {
	url, tokenFile string
	users          string // what the names of users end with, in front of their account
	client         *http.Client
}

// serviceAccount is where a pod finds what it needs to ask.
const serviceAccount = "/var/run/secrets/kubernetes.io/serviceaccount/"

// NewTokenReview makes it. Nothing is asked yet.
func NewTokenReview(o TokenReviewOptions) (*TokenReview, error) {
	if o.URL == "in-cluster" {
		host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT")
		if host == "" || port == "" {
			return nil, errors.New("in-cluster: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set")
		}
		o.URL = "https://" + net.JoinHostPort(host, port)
		if o.CA == "" {
			o.CA = serviceAccount + "ca.crt"
		}
		if o.TokenFile == "" {
			o.TokenFile = serviceAccount + "token"
		}
	}
	transport := &http.Transport{TLSHandshakeTimeout: 5 * time.Second, IdleConnTimeout: time.Minute, TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12}}
	if o.CA != "" {
		text, err := readBounded(o.CA, 1<<20)
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s: no certificate in the file", o.CA)
		}
		transport.TLSClientConfig.RootCAs = pool
	}
	url := strings.TrimSuffix(o.URL, "/") + "/apis/authentication.k8s.io/v1/tokenreviews"
	users := ":"
	if o.Namespace != "" {
		users = ":" + o.Namespace + ":"
	}
	return &TokenReview{url, o.TokenFile, users, &http.Client{Transport: transport, Timeout: 10 * time.Second}}, nil
}

// tokenReview is the API's object.
type tokenReview struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Token string `json:"token"`
	} `json:"spec"`
	Status struct {
		Authenticated bool   `json:"authenticated"`
		Error         string `json:"error,omitempty"`
		User          struct {
			Username string `json:"username,omitempty"`
		} `json:"user"`
	} `json:"status"`
}

// Verify asks. The account is the one that the token claims, which has to be the one that the API knows it by.
func (r *TokenReview) Verify(ctx context.Context, text string) (account string, err error) {
	t, err := parseToken(text)
	if err != nil {
		return "", err
	}
	account = t.claims.Kubernetes.ServiceAccount.Name
	answer, err := r.ask(ctx, text)
	switch {
	case err != nil:
		return "", fmt.Errorf("token review: %w", err)
	case !answer.Status.Authenticated:
		return "", fmt.Errorf("token review: not authenticated: %s", answer.Status.Error)
	case !strings.HasSuffix(answer.Status.User.Username, r.users+account):
		return "", fmt.Errorf("token review: the token is that of %q", answer.Status.User.Username)
	}
	return account, nil
}

func (r *TokenReview) ask(ctx context.Context, text string) (*tokenReview, error) {
	q := tokenReview{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"}
	q.Spec.Token = text
	body, err := json.Marshal(&q)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, r.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if r.tokenFile != "" {
		own, err := readBounded(r.tokenFile, maxToken)
		if err != nil {
			return nil, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(own)))
	}
	response, err := r.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusCreated && response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", response.StatusCode)
	}
	answer := &tokenReview{}
	return answer, json.NewDecoder(io.LimitReader(response.Body, 1<<20)).Decode(answer)
}
