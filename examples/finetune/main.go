// Command finetune carries out a fine-tuning recipe and prints the eval loss.
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	_ "spillway/device/cuda" // run on a GPU if there is one
	"spillway/finetune"
	"spillway/recipe"
)

func main() {
	r, err := recipe.Read(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	result, err := finetune.Train(context.Background(), r, finetune.Options{})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("eval loss %.4f\n", result.EvalLoss)
}
