// nothing here

   // or here
