package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
)

// peer is one end of a WebSocket to the router.
type peer struct {
	nc  net.Conn
	in  []byte // read and not used
	buf []byte
	out []byte
}

// dial opens a WebSocket at a path of the router.
func dial(addr, path string) (*peer, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(nc, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", path, addr)
	br := bufio.NewReaderSize(nc, 1024)
	res, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusSwitchingProtocols {
		return nil, errors.New(res.Status)
	}
	p := &peer{nc: nc}
	if n := br.Buffered(); n > 0 {
		b, _ := br.Peek(n)
		p.in = bytes.Clone(b)
	}
	return p, nil
}

// add queues a message, masked with zeros.
func (p *peer) add(payload ...string) {
	n := 0
	for _, s := range payload {
		n += len(s)
	}
	p.out = append(p.out, 0x81)
	switch {
	case n < 126:
		p.out = append(p.out, 0x80|byte(n))
	case n < 1<<16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0x80|126), uint16(n))
	default:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0x80|127), uint64(n))
	}
	p.out = append(p.out, 0, 0, 0, 0)
	for _, s := range payload {
		p.out = append(p.out, s...)
	}
}

// addBinary is add of a binary message.
func (p *peer) addBinary(payload []byte) {
	at := len(p.out)
	p.add(string(payload))
	p.out[at] = 0x82
}

// flush writes what was added, if anything was.
func (p *peer) flush() error {
	if len(p.out) == 0 {
		return nil
	}
	_, err := p.nc.Write(p.out)
	p.out = p.out[:0]
	return err
}

// read waits for messages and calls f with each that is there.
func (p *peer) read(f func(payload []byte)) error {
	if p.buf == nil {
		p.buf = make([]byte, 1<<20)
	}
	for {
		any := false
		for {
			payload, size := frame(p.in)
			if size == 0 {
				break
			}
			f(payload)
			p.in, any = p.in[size:], true
		}
		if any {
			return nil
		}
		n := copy(p.buf, p.in)
		m, err := p.nc.Read(p.buf[n:])
		if err != nil {
			return err
		}
		p.in = p.buf[:n+m]
	}
}

// frame gives the first frame of b; size is 0 where it is not whole.
func frame(b []byte) (payload []byte, size int) {
	if len(b) < 2 {
		return nil, 0
	}
	n, head := int(b[1]&0x7f), 2
	switch {
	case n == 126 && len(b) >= 4:
		n, head = int(binary.BigEndian.Uint16(b[2:])), 4
	case n == 127 && len(b) >= 10:
		n, head = int(binary.BigEndian.Uint64(b[2:])), 10
	case n >= 126:
		return nil, 0
	}
	if len(b) < head+n {
		return nil, 0
	}
	return b[head : head+n], head + n
}
