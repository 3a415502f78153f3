package sample

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"replicaset-controller/devserver"
)

// The server of all tests in this package.
var (
	server  *devserver.Server
	cluster *rest.Config
)

func TestMain(m *testing.M) {
	var err error
	server, err = devserver.Start()
	if err == nil {
		cluster, err = clientcmd.RESTConfigFromKubeConfig(server.Kubeconfig)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Getenv("ONLY_START") != "" {
		fmt.Println(server.URL)
		select {}
	}
	code := m.Run()
	server.Stop()
	// A second one, of a clean-up, returns at once.
	server.Stop()
	os.Exit(code)
}
