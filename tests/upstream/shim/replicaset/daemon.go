// Added to pkg/controller/replicaset: runs the daemon in $REPLICASET_CONTROLLER in the place
// of a controller of this process.

package replicaset

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/featuregate"
)

// Daemon is one controller of the daemon, with what the test gave upstream's
// constructor.
type Daemon struct {
	Controller string
	// SyncsFlag is empty for a fixed number of workers.
	SyncsFlag     string
	Client        clientset.Interface
	BurstReplicas int
}

// Run runs the daemon until the context ends, and anew with each change of a
// feature gate: a controller in this process would notice the change at once.
func (d *Daemon) Run(ctx context.Context, workers int) {
	// The kernel kills the daemon when the thread that started it ends, so
	// that none outlives a test that panics.
	runtime.LockOSThread()

	client := d.Client.CoreV1().RESTClient().(*rest.RESTClient)
	address, stopProxy := startProxy(client)
	defer stopProxy()

	qps := float32(0)
	if limiter := client.GetRateLimiter(); limiter != nil {
		qps = limiter.QPS()
	}
	for ctx.Err() == nil {
		gates := featureGates()
		flags := []string{
			"--master=" + address,
			"--controllers=" + d.Controller,
			fmt.Sprintf("--burst-replicas=%d", d.BurstReplicas),
			fmt.Sprintf("--kube-api-qps=%v", qps),
			"--feature-gates=" + gates,
			"--leader-elect=false",
			"--secure-port=0",
		}
		if d.SyncsFlag != "" {
			flags = append(flags, fmt.Sprintf("%s=%d", d.SyncsFlag, workers))
		}
		d.runUntil(ctx, func() bool { return featureGates() != gates }, flags...)
	}
}

// runUntil runs the daemon once. Should it end by itself, the test process ends
// too: no verdict may rest on a controller that was not there.
func (d *Daemon) runUntil(ctx context.Context, changed func() bool, flags ...string) {
	cmd := exec.Command(os.Getenv("REPLICASET_CONTROLLER"), flags...)
	cmd.Env = []string{}
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		panic(fmt.Sprintf("cannot start the daemon: %v", err))
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()

	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && !changed() {
		select {
		case err := <-exited:
			panic(fmt.Sprintf("the daemon has ended by itself: %v", err))
		case <-ctx.Done():
		case <-tick.C:
		}
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	<-exited
}

// startProxy serves the API server of the client on a port of its own, with the
// client's credentials, and returns the address.
func startProxy(client *rest.RESTClient) (string, func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(client.Get().AbsPath("/").URL())
	proxy.Transport = client.Client.Transport
	server := &http.Server{Handler: proxy}
	go func() { _ = server.Serve(listener) }()
	return "http://" + listener.Addr().String(), func() { _ = server.Close() }
}

// featureGates has those gates of the test that upstream's controllers ask for
// and that can change, as a value of --feature-gates.
func featureGates() string {
	value := ""
	known := utilfeature.DefaultMutableFeatureGate.GetAll()
	for _, gate := range []featuregate.Feature{
		"PodDeletionCost",
		"DeploymentReplicaSetTerminatingReplicas",
		"StaleControllerConsistencyReplicaSet",
	} {
		// Older versions lack some.
		if _, ok := known[gate]; !ok {
			continue
		}
		if value != "" {
			value += ","
		}
		value += fmt.Sprintf("%s=%t", gate, utilfeature.DefaultFeatureGate.Enabled(gate))
	}
	return value
}
