package sample

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"replicaset-controller/devserver"
)

func TestAServerStartsAndStops(t *testing.T) {
	server, err := devserver.Start("--nodes=1")
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(server.URL + "/version")
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer, err)
	}
	answer.Body.Close()
	server.Stop()
	if _, err := http.Get(server.URL + "/version"); err == nil {
		t.Fatal("the server still answers")
	}
	if _, err := os.Stat(server.KubeconfigPath); !os.IsNotExist(err) {
		t.Fatal("the kubeconfig is still there")
	}
}

func TestAServerThatDoesNotStartSaysWhy(t *testing.T) {
	if _, err := devserver.Start("--no-such-flag"); err == nil || !strings.Contains(err.Error(), "--no-such-flag") {
		t.Fatal(err)
	}
	t.Setenv("REPLICASET_CONTROLLER", "/no/such/program")
	if _, err := devserver.Start(); err == nil || !strings.Contains(err.Error(), "/no/such/program") {
		t.Fatal(err)
	}
}
