// A program that profiles itself, and counts what the profiler has collected (the protocol buffer
// of github.com/google/pprof/proto/profile.proto): samples in all, and whether they name the
// function that ran. `threads` of them burn CPU time.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"runtime/pprof"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const burns = 500 * time.Millisecond

var sink uint64

// CPU time of the program.
func used() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

//go:noinline
func spin(rounds uint64) uint64 {
	x := rounds
	for i := uint64(0); i < rounds; i++ {
		x = x*6364136223846793005 + i
	}
	return x
}

func burnUntil(until time.Duration) {
	for used() < until {
		sink += spin(1 << 20)
	}
}

func varint(b []byte) (uint64, []byte) {
	var value uint64
	for i, c := range b {
		value |= uint64(c&127) << (7 * i)
		if c < 128 {
			return value, b[i+1:]
		}
	}
	panic("no end")
}

// Calls take with each field of a message: its number, and its value or bytes.
func fields(b []byte, take func(number, value uint64, content []byte)) {
	for len(b) > 0 {
		var key, value uint64
		var content []byte
		key, b = varint(b)
		value, b = varint(b)
		if key&7 == 2 {
			content, b = b[:value], b[value:]
		}
		take(key>>3, value, content)
	}
}

func main() {
	threads, err := strconv.Atoi(os.Args[1])
	if err != nil {
		panic(err)
	}
	var written bytes.Buffer
	before := used()
	if err := pprof.StartCPUProfile(&written); err != nil {
		panic(err)
	}
	var wait sync.WaitGroup
	for range make([]int, threads) {
		wait.Add(1)
		go func() {
			burnUntil(before + burns)
			wait.Done()
		}()
	}
	wait.Wait()
	pprof.StopCPUProfile()
	took := used() - before
	reader, err := gzip.NewReader(&written)
	if err != nil {
		panic(err)
	}
	profile, err := io.ReadAll(reader)
	if err != nil {
		panic(err)
	}
	samples, named := uint64(0), false
	fields(profile, func(number, _ uint64, content []byte) {
		switch number {
		case 2: // a sample: how often it was found, and its time
			isFirst := true
			fields(content, func(number, value uint64, _ []byte) {
				if number == 2 && isFirst {
					samples += value
					isFirst = false
				}
			})
		case 6: // a string
			named = named || string(content) == "main.spin"
		}
	})
	fmt.Fprintln(os.Stderr, samples, "samples in", took)
	// One for each 10 ms; a busy host may leave out many.
	expected := uint64(took / (10 * time.Millisecond))
	fmt.Println("samples", samples >= expected/10 && samples <= expected*2+5, "named", named)
}
